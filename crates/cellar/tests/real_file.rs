//! A cellar in a real file: what it leaves behind, what a process that was killed leaves to the next, and a file system
//! that takes no more.

use rota_cellar::{
    Accept, BLOCK_BYTES_MAX, BlockId, Cellar, Done, Key, Orphan, PutError, Settings, TakenOver, Ticket,
};
use std::fs::{File, read_dir};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: u64 = 256 << 20;

/// Wherever tests run: that may be memory.
fn settings(folder: &Path) -> Settings {
    Settings {
        accept: Accept::Anything,
        leave_bytes: 0,
        workers: 3,
        jobs: 16,
        ..Settings::new(folder, LIMIT)
    }
}

fn block(index: u32) -> BlockId {
    BlockId { tenant: 0, handle: 0, index }
}

fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(next).collect()
}

fn get(cellar: &Cellar, ticket: &Ticket) -> Vec<u8> {
    let mut bytes = vec![0; ticket.plain_bytes()];
    cellar.get(ticket, &mut bytes).expect("nothing is broken");
    bytes
}

#[test]
fn blocks_go_to_a_file_that_nobody_sees() {
    let folder = tempfile::tempdir().expect("a folder");
    let cellar = Cellar::open(&settings(folder.path())).expect("open");
    let mut waiting = 0;
    let mut tickets = Vec::new();
    let mut take = |cellar: &Cellar| {
        let done = cellar.wait(Duration::from_secs(60));
        let Some(Done::Put { block, result, .. }) = done else { panic!("{done:?}") };
        tickets.push((block, result.expect("there is room")));
    };
    for index in 0..40 {
        let mut source: Box<dyn AsRef<[u8]> + Send> = Box::new(noise(index, BLOCK_BYTES_MAX));
        while let Err(refused) = cellar.submit_put(block(index), source) {
            source = refused.back;
            take(&cellar);
            waiting -= 1;
        }
        waiting += 1;
    }
    for _ in 0..waiting {
        take(&cellar);
    }
    assert_eq!(read_dir(folder.path()).expect("a folder").count(), 0);
    assert_eq!(tickets.len(), 40);
    for (block, ticket) in &tickets {
        assert_eq!(get(&cellar, ticket), noise(block.index, BLOCK_BYTES_MAX));
    }
    // Nothing of what was put can be found in the file.
    let file = File::from(cellar.file().expect("a descriptor"));
    let mut bytes = Vec::new();
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .expect("readable by its owner");
    let needle = &noise(7, 64)[..];
    assert!(bytes.len() >= 40 * BLOCK_BYTES_MAX && !bytes.windows(64).any(|window| window == needle));
    for (_, ticket) in &tickets {
        assert!(cellar.discard(ticket));
    }
    let before = cellar.statistics().file_bytes;
    assert_eq!(cellar.trim(), before);
    assert_eq!(cellar.statistics().file_bytes, 0);
}

#[test]
fn a_cellar_taken_apart_goes_together_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path());
    let cellar = Cellar::open(&settings).expect("open");
    for index in 0..10 {
        let source = Box::new(noise(index, BLOCK_BYTES_MAX));
        cellar.submit_put(block(index), source).expect("there are 16 places");
    }
    let parts = cellar.into_parts().expect("a descriptor");
    assert_eq!((parts.tickets.len(), parts.done.len()), (10, 10));
    let taken = Cellar::from_parts(&settings, parts.file, parts.key, parts.tickets.clone()).expect("open");
    let TakenOver { cellar, set_aside } = taken;
    assert_eq!(set_aside, []);
    for ticket in &parts.tickets {
        assert_eq!(get(&cellar, ticket), noise(ticket.block().index, BLOCK_BYTES_MAX));
    }
    assert_eq!(cellar.statistics().blocks, 10);
}

const CHILD: &str = "ROTA_CELLAR_TEST_CHILD";

/// This program again, for one test that is ignored otherwise, after some shell commands.
fn child(test: &str, before: &str, folder: &Path) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    let run = format!("{before} exec \"$0\" --exact --ignored --nocapture --test-threads 1 {test}");
    command.arg("-c").arg(run).arg(program).env(CHILD, folder);
    command
}

/// A child that does not outlive its test, also when that fails.
struct Guarded(Child);

impl Guarded {
    /// Kills it, and waits for its last thread.
    fn end(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}

fn child_folder() -> Option<std::path::PathBuf> {
    std::env::var_os(CHILD).map(Into::into)
}

/// A keeper holds the file and the key from the beginning, and gets each ticket as it comes. The process that puts blocks is
/// killed in the middle of its work.
#[test]
fn a_process_that_is_killed_leaves_its_blocks_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings(folder.path());
    let (file, key) = {
        let cellar = Cellar::open(&settings).expect("open");
        let parts = cellar.into_parts().expect("a descriptor");
        (parts.file.into_file(), parts.key)
    };
    let mut worker = child("puts_until_it_is_killed", "", folder.path())
        .stdin(Stdio::from(file.try_clone().expect("a descriptor")))
        .env("ROTA_CELLAR_TEST_KEY", hex(key.bytes()))
        .stdout(Stdio::piped())
        .spawn()
        .map(Guarded)
        .expect("sh");
    let mut said = std::io::BufReader::new(worker.0.stdout.take().expect("piped"));
    let mut tickets = Vec::new();
    let mut line = String::new();
    while tickets.len() < 30 {
        line.clear();
        let bytes = std::io::BufRead::read_line(&mut said, &mut line).expect("it speaks");
        assert_ne!(bytes, 0, "it ended before it was killed");
        if let Some(ticket) = line.trim_end().strip_prefix("ticket ") {
            tickets.push(Ticket::from_bytes(&unhex(ticket)).expect("a ticket"));
        }
    }
    worker.end();
    let orphan = Orphan::vouched_for(file);
    let taken = Cellar::from_parts(&settings, orphan, key, tickets.clone()).expect("open");
    let TakenOver { cellar, set_aside } = taken;
    assert_eq!(set_aside, []);
    for ticket in &tickets {
        let expected = noise(ticket.block().index, BLOCK_BYTES_MAX);
        assert!(get(&cellar, ticket) == expected, "{}", ticket.block());
    }
    let new = cellar.put(block(1000), &noise(1000, BLOCK_BYTES_MAX)).expect("the rest is free");
    assert_eq!(get(&cellar, &new), noise(1000, BLOCK_BYTES_MAX));
}

#[test]
#[ignore = "run by the test above"]
fn puts_until_it_is_killed() {
    let Some(folder) = child_folder() else { return };
    let key = unhex(&std::env::var("ROTA_CELLAR_TEST_KEY").expect("the parent sets it"));
    let key = Key::from_bytes(&key.try_into().expect("32 bytes")).expect("locked");
    let file = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let orphan = Orphan::vouched_for(file);
    let cellar = Cellar::from_parts(&settings(&folder), orphan, key, []).expect("open").cellar;
    for index in 0..60 {
        let ticket = cellar.put(block(index), &noise(index, BLOCK_BYTES_MAX)).expect("there is room");
        println!("\nticket {}", hex(&ticket.to_bytes()));
        std::io::stdout().flush().expect("the parent reads");
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// A file system that takes no more, by the limit on the size of files: the kernel refuses to allocate and to write.
#[test]
fn a_file_system_that_takes_no_more_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    // Shells count in 512 or 1024 bytes: a step of 64 MiB fits once or twice, and then no more.
    let limited = child("fills_the_file_system", "trap '' XFSZ; ulimit -f 147456;", folder.path()).output();
    let output = limited.expect("sh");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("blocks fit: the disk of the cellar is full"), "{said}");
}

#[test]
#[ignore = "run by the test above"]
fn fills_the_file_system() {
    let Some(folder) = child_folder() else { return };
    let cellar = Cellar::open(&settings(&folder)).expect("open");
    let mut tickets = Vec::new();
    let full = loop {
        let index = tickets.len() as u32;
        match cellar.put(block(index), &noise(index, BLOCK_BYTES_MAX)) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, PutError::DiskFull { .. }), "{full}");
    println!("\n{} blocks fit: {full}", tickets.len());
    assert_eq!(cellar.statistics().blocks, tickets.len() as u64);
    for (index, ticket) in tickets.iter().enumerate() {
        assert_eq!(get(&cellar, ticket), noise(index as u32, BLOCK_BYTES_MAX));
    }
    assert!(cellar.discard(&tickets[0]));
    cellar.put(block(99), &noise(99, BLOCK_BYTES_MAX)).expect("space is used again");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digits).collect()
}
