//! What the daemon has told so far. Tests ask for it hundreds of times a second, so each line is read once.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::rc::Rc;

use serde_json::Value;

/// See the module.
pub(super) struct Timeline {
    path: PathBuf,
    /// Where the first line begins that was not read.
    read_to: u64,
    events: Vec<Rc<Value>>,
}

impl Timeline {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read_to: 0, events: Vec::new() }
    }

    /// Every event up to now.
    pub(super) fn events(&mut self) -> &[Rc<Value>] {
        // Before the daemon has told anything there is no file.
        if let Ok(mut file) = File::open(&self.path) {
            let mut text = String::new();
            file.seek(SeekFrom::Start(self.read_to)).unwrap();
            file.read_to_string(&mut text).unwrap();
            // The last line may not be whole yet.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            self.events
                .extend(text[..whole].lines().map(|line| Rc::new(serde_json::from_str(line).unwrap())));
            self.read_to += whole as u64;
        }
        &self.events
    }
}
