//! The log, on stderr: lines that nobody reads must neither end the keeper nor hold it up.
//!
//! Whoever reads stderr may be gone, the disk behind it full, or a pipe's reader asleep. So a thread of its own writes, and
//! what it cannot write is lost; and when it does not get on, lines beyond a few are lost, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that may wait for being written.
const LINES_MAX: usize = 256;
/// How long the end of the process waits for them.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

enum Entry {
    Line(Vec<u8>),
    /// Somebody waits until all before it is written.
    Last(SyncSender<()>),
}

/// Where lines go, each by one call. Writing to it never fails and never waits.
#[derive(Clone)]
pub(crate) struct Log {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// To stderr. Not by the standard library's lock on it, which a write that hangs would keep.
    pub(crate) fn start() -> io::Result<Log> {
        Log::to(File::from(io::stderr().as_fd().try_clone_to_owned()?))
    }

    fn to(out: impl Write + Send + 'static) -> io::Result<Log> {
        let (entries, queue) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let log = Log { entries, lost: Arc::clone(&lost) };
        std::thread::Builder::new()
            .name("rota-log".to_owned())
            .spawn(move || write_all(&queue, out, &lost))?;
        Ok(log)
    }

    /// Waits a moment until what was said is written.
    pub(crate) fn close(&self) {
        let (done, written) = sync_channel(1);
        if self.entries.try_send(Entry::Last(done)).is_ok() {
            let _ = written.recv_timeout(CLOSED_WITHIN);
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.entries.try_send(Entry::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(queue: &Receiver<Entry>, mut out: impl Write, lost: &AtomicU64) {
    for entry in queue {
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "rota-keeper: {lost} lines of this log are lost");
        }
        match entry {
            Entry::Line(line) => drop(out.write_all(&line)),
            Entry::Last(done) => drop(done.try_send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Keeps what is written, each time after a word from the test.
    struct Slow {
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without the test it goes on.
            let _ = self.go.recv();
            self.written.lock().expect("no one panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_wait_are_lost_and_counted() {
        let (test, go) = sync_channel(0);
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut log = Log::to(Slow { go, written: Arc::clone(&written) }).expect("a thread");
        for number in 0..3 * LINES_MAX {
            log.write_all(format!("line {number}\n").as_bytes()).expect("it never fails");
        }
        drop(test);
        let (done, all) = sync_channel(1);
        for entry in [Entry::Line(b"the end\n".to_vec()), Entry::Last(done)] {
            log.entries.send(entry).expect("the thread is there");
        }
        all.recv().expect("the thread is there");
        let text = String::from_utf8(written.lock().expect("no one panicked").clone()).expect("text");
        assert!(text.starts_with("line 0\n") || text.starts_with("rota-keeper: "), "{text}");
        assert!(text.contains("lines of this log are lost") && text.ends_with("the end\n"), "{text}");
        let lines = text.lines().filter(|line| line.starts_with("line ")).count();
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&lines), "{lines}");
    }

    /// A full disk, or a pipe without a reader.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_harms_nobody() {
        let mut log = Log::to(Full).expect("a thread");
        for _ in 0..3 {
            log.write_all(b"for nobody\n").expect("it never fails");
            log.close();
        }
    }
}
