//! The timeline: one JSON line per thing that happened, for people and scripts.
//!
//! Whoever notes something writes it, with all that was noted before. A file system may take milliseconds for that now and
//! then, which is longer than a hint leaves time for: so beside somebody latency-critical a thread of its own writes
//! ([`Events::write_aside`]).

use sched::TenantId;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whom an event is about.
#[derive(Clone, Debug)]
pub struct Who {
    /// Its number.
    pub tenant: TenantId,
    /// Its process.
    pub pid: u32,
    /// Its job.
    pub job: String,
}

/// Where events go. Cheap to clone; without a file, events are only counted as log lines at debug level.
#[derive(Clone, Debug)]
pub struct Events {
    begin: Instant,
    timeline: Option<Arc<Timeline>>,
}

#[derive(Debug)]
struct Timeline {
    noted: Mutex<Noted>,
    /// There are lines for the thread that writes, or it is to end.
    bell: Condvar,
    /// Held while lines are taken and written, so that they stay in their order.
    file: Mutex<File>,
}

#[derive(Debug, Default)]
struct Noted {
    /// Not written yet.
    lines: String,
    /// A thread writes them.
    aside: bool,
}

impl Timeline {
    fn of(file: File) -> Self {
        Self { noted: Mutex::default(), bell: Condvar::new(), file: Mutex::new(file) }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: &str) {
        let aside = {
            let mut noted = self.noted();
            noted.lines.push_str(line);
            noted.aside
        };
        if aside { self.bell.notify_one() } else { self.write() }
    }

    /// Writes all that was noted. One write per line, so that a reader never sees half of one. A full disk must not stop turns.
    fn write(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut self.noted().lines);
        for line in lines.split_inclusive('\n') {
            if let Err(cause) = file.write_all(line.as_bytes()) {
                tracing::warn!("cannot write an event: {cause}");
            }
        }
    }

    /// Writes what is noted until that is to be done by whoever notes it.
    fn write_on(&self) {
        loop {
            let mut noted = self.noted();
            while noted.aside && noted.lines.is_empty() {
                noted = self.bell.wait(noted).unwrap_or_else(PoisonError::into_inner);
            }
            let goes_on = noted.aside;
            drop(noted);
            self.write();
            if !goes_on {
                return;
            }
        }
    }
}

impl Events {
    /// Begins a timeline; appends to `path` if there is one.
    pub fn begin(path: Option<&Path>) -> std::io::Result<Self> {
        let file = match path {
            Some(path) => Some(File::options().create(true).append(true).open(path)?),
            None => None,
        };
        Ok(Self { begin: Instant::now(), timeline: file.map(Timeline::of).map(Arc::new) })
    }

    /// From now on a thread writes, and nobody who notes something waits for a file; or not any more.
    pub fn write_aside(&self, aside: bool) {
        let Some(timeline) = &self.timeline else { return };
        if std::mem::replace(&mut timeline.noted().aside, aside) == aside {
            return;
        }
        timeline.bell.notify_all();
        if !aside {
            return timeline.write();
        }
        let own = timeline.clone();
        let writer = std::thread::Builder::new().name("events".into());
        if let Err(cause) = writer.spawn(move || own.write_on()) {
            tracing::debug!("no thread writes events: {cause}");
            timeline.noted().aside = false;
        }
    }

    /// Goes on with a timeline that began at this instant of the system's monotonic clock.
    pub fn since(self, begin_ns: u64) -> Self {
        let ago = Duration::from_nanos(wire::monotonic_ns().saturating_sub(begin_ns));
        Self { begin: Instant::now().checked_sub(ago).unwrap_or(self.begin), ..self }
    }

    /// Time since the daemon began: the clock of everything in it.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// An instant on that clock.
    pub fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.begin)
    }

    /// Notes that `event` happened to someone, with `fields`, a JSON object.
    pub fn note_of(&self, who: &Who, event: &str, fields: Value) {
        let mut line = Map::new();
        line.insert("tenant".into(), json!(who.tenant.0));
        line.insert("pid".into(), json!(who.pid));
        line.insert("job".into(), json!(who.job));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        self.note(event, Value::Object(line));
    }

    /// Notes that `event` happened, with `fields`, a JSON object.
    pub fn note(&self, event: &str, fields: Value) {
        tracing::debug!("{event} {fields}");
        let Some(timeline) = &self.timeline else { return };
        let mut line = Map::new();
        line.insert("t_ns".into(), json!(nanos(self.now())));
        line.insert("event".into(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        timeline.note(&text);
    }
}

/// A length of time as the events give it.
pub fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_line_of_json() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::begin(Some(file.path())).unwrap();
        events.note("freeze", json!({ "tenant": 1, "took_ns": 5 }));
        events.note("left", json!({ "tenant": 1 }));
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["event"], "freeze");
        assert_eq!(lines[0]["took_ns"], 5);
        assert!(lines[0]["t_ns"].as_u64() <= lines[1]["t_ns"].as_u64());
    }
    #[test]
    fn beside_somebody_latency_critical_nobody_waits_for_the_file_and_lines_stay_in_order() {
        let (reader, writer) = std::io::pipe().unwrap();
        // A file that takes no more for now: it is full.
        let full = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        let events = Events {
            begin: Instant::now(),
            timeline: Some(Arc::new(Timeline::of(File::from(std::os::fd::OwnedFd::from(writer))))),
        };
        events.write_aside(true);
        let (noted, all) = std::sync::mpsc::channel();
        let noter = events.clone();
        std::thread::spawn(move || {
            for number in 0..full {
                noter.note("freeze", json!({ "number": number }));
            }
            let _ = noted.send(());
        });
        let waited = all.recv_timeout(Duration::from_secs(60));
        let lines = std::io::BufRead::lines(std::io::BufReader::new(reader));
        let seen = lines.take(full).map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        assert!(seen.enumerate().all(|(number, line)| line["number"] == number));
        waited.expect("whoever notes something does not wait for the file");
        events.write_aside(false);
    }

    #[test]
    fn what_was_left_to_the_thread_is_written_before_anything_else_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::begin(Some(file.path())).unwrap();
        for aside in [true, false, true, false] {
            events.write_aside(aside);
            (0..100).for_each(|number| events.note("freeze", json!({ "number": number })));
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        let numbers =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64());
        assert!(numbers.eq((0..400).map(|number| Some(number % 100))));
    }
}
