//! A worker that maps the arena has only a few of its files open at a time: there are more of them than a process may have.
//! By itself, as it counts the files of the whole process.

use rota_keeper::message::SEGMENTS_PER_ANSWER_MAX;
use rota_keeper::*;
use std::time::Duration;

const PATIENCE: Patience = Patience { connect: Duration::from_secs(60), answer: Duration::from_secs(60) };
const SEGMENTS: usize = 2 * SEGMENTS_PER_ANSWER_MAX + 5;

/// Files of segments that this process has open: the keeper's, as it is a thread here, and the worker's.
fn open_files() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("every process has one");
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().contains("rota-arena")).count()
}

#[test]
fn files_are_closed_page_by_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let listener = wire::Listener::bind(&socket).expect("a socket");
    let parts = [Part { bytes: SEGMENTS as u64 * BLOCK_BYTES, node: None }];
    let mut server = Server::new(Keeper::start(&parts, BLOCK_BYTES).expect("a small arena"), listener);
    let server = std::thread::spawn(move || server.run());
    let mut worker = Client::connect(&socket, PATIENCE).expect("the keeper is there");
    while worker.progress().expect("an answer").growing {
        std::thread::yield_now();
    }
    assert_eq!(open_files(), SEGMENTS);
    let mut view = View::new(worker.welcome()).expect("addresses");
    let mut most = 0;
    let mapped = worker.segments(0, |segment, file| -> Result<(), ClientError> {
        view.map(segment, &file)?;
        most = most.max(open_files());
        Ok(())
    });
    mapped.expect("all of it has a place");
    assert_eq!(view.segments() as usize, SEGMENTS);
    assert!((SEGMENTS + 1..=SEGMENTS + SEGMENTS_PER_ANSWER_MAX).contains(&most), "{most}");
    assert_eq!(open_files(), SEGMENTS);
    assert_eq!(worker.leave(End::Forced).expect("it may leave"), (true, 0));
    server.join().expect("it does not panic");
}
