//! A keeper on a thread of the worker's own process: the same socket and the same index, for whoever needs no other process.
//! Then nothing outlives the worker's process. Its memory comes as it is used.

use crate::client::{Client, Patience};
use crate::keeper::{Keeper, KeeperError};
use crate::message::End;
use crate::part::Part;
use crate::segment::Pages;
use crate::server::Server;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Listener, WireError};

/// Its worker should have gone before it; one that has not is not waited for.
const LAST_WORD_WITHIN: Patience =
    Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(5) };

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// No socket.
    #[error(transparent)]
    Socket(#[from] WireError),
    /// No keeper.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// No thread.
    #[error("cannot start a thread for the keeper: {0}")]
    Thread(#[from] std::io::Error),
}

/// See the module. Dropped, it ends, with all that is away: its workers are to be dropped before.
#[derive(Debug)]
pub struct InProcess {
    socket: PathBuf,
    thread: Option<JoinHandle<u64>>,
}

impl InProcess {
    /// Starts one that listens here.
    pub fn start(socket: &Path, parts: &[Part], segment_bytes: u64) -> Result<InProcess, InProcessError> {
        let listener = Listener::bind(socket)?;
        let mut server = Server::new(Keeper::start_with(parts, segment_bytes, Pages::WhenUsed)?, listener);
        let thread = std::thread::Builder::new().name("rota-keeper".to_owned());
        let thread = thread.spawn(move || server.run())?;
        Ok(InProcess { socket: socket.into(), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let left =
            Client::connect(&self.socket, LAST_WORD_WITHIN).and_then(|client| client.leave(End::Forced));
        let _ = std::fs::remove_file(&self.socket);
        match (left, self.thread.take()) {
            (Ok(_), Some(thread)) => drop(thread.join()),
            (Err(error), _) => tracing::warn!(%error, "a keeper in this process cannot be told to end"),
            (Ok(_), None) => {}
        }
    }
}
