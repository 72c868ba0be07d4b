//! The timeline: one JSON line per thing that happened, for people and scripts.

use sched::TenantId;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
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
    file: Option<Arc<Mutex<File>>>,
}

impl Events {
    /// Begins a timeline; appends to `path` if there is one.
    pub fn begin(path: Option<&Path>) -> std::io::Result<Self> {
        let file = match path {
            Some(path) => Some(File::options().create(true).append(true).open(path)?),
            None => None,
        };
        Ok(Self { begin: Instant::now(), file: file.map(|file| Arc::new(Mutex::new(file))) })
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
        let Some(file) = &self.file else { return };
        let mut line = Map::new();
        line.insert("t_ns".into(), json!(nanos(self.now())));
        line.insert("event".into(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // One write per line, so that a reader never sees half of one. A full disk must not stop turns.
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(cause) = file.write_all(text.as_bytes()) {
            tracing::warn!("cannot write an event: {cause}");
        }
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
}
