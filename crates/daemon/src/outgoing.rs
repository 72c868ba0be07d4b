//! What the daemon says to one tenant, sent by a thread of its own.
//!
//! A tenant that does not read, because it is stopped, say, fills its socket. Neither the main loop nor the executor may
//! wait for that: all others would wait with them. An honest tenant has one answer for each of its requests and one order
//! at a time for each of its handles in this queue; one with more than [`QUEUED_MAX`] is hung up on.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use wire::{Connection, FromDaemon};

/// Far more than any program has handles.
const QUEUED_MAX: usize = 1 << 20;

/// To a tenant. Cheap to clone; the thread ends with the last clone, or when the tenant cannot be reached.
#[derive(Clone, Debug)]
pub struct Outgoing {
    connection: Arc<Connection>,
    queue: Sender<(FromDaemon, Vec<Arc<OwnedFd>>)>,
    queued: Arc<AtomicUsize>,
}

/// The tenant cannot be reached any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

impl Outgoing {
    /// Begins sending on this connection.
    pub fn start(connection: Arc<Connection>) -> std::io::Result<Self> {
        let (queue, messages) = mpsc::channel::<(FromDaemon, Vec<Arc<OwnedFd>>)>();
        let outgoing = Self { connection: connection.clone(), queue, queued: Arc::default() };
        let queued = outgoing.queued.clone();
        std::thread::Builder::new().name("outgoing".into()).spawn(move || {
            for (message, files) in messages {
                queued.fetch_sub(1, Relaxed);
                let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
                if let Err(cause) = connection.send(&message, &files) {
                    tracing::debug!("a tenant cannot be reached: {cause}");
                    // Its conversation notices, and takes it for gone.
                    connection.shut_down();
                    return;
                }
            }
        })?;
        Ok(outgoing)
    }

    /// Ends the conversation. The tenant goes on alone if all of its memory is there, and ends if not.
    pub fn hang_up(&self) {
        self.connection.shut_down();
    }

    /// Has a message sent, after those before it. Never waits.
    pub fn send(&self, message: FromDaemon) -> Result<(), Unreachable> {
        self.send_with(message, Vec::new())
    }

    /// The same for one that carries files.
    pub fn send_with(&self, message: FromDaemon, files: Vec<Arc<OwnedFd>>) -> Result<(), Unreachable> {
        if self.queued.fetch_add(1, Relaxed) >= QUEUED_MAX {
            self.hang_up();
        }
        self.queue.send((message, files)).map_err(|_| Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::GrantId;

    #[test]
    fn a_tenant_that_does_not_read_holds_nobody_up_and_gets_everything_later() {
        let (daemon, tenant) = Connection::pair().unwrap();
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        let many = 100_000;
        for number in 0..many {
            outgoing.send(FromDaemon::Granted { grant: GrantId(number) }).unwrap();
        }
        for number in 0..many {
            let (message, _) = tenant.receive::<FromDaemon>().unwrap();
            assert_eq!(message, FromDaemon::Granted { grant: GrantId(number) });
        }
    }

    #[test]
    fn a_tenant_that_is_gone_is_unreachable() {
        let (daemon, tenant) = Connection::pair().unwrap();
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        drop(tenant);
        let mut sent = 0;
        while outgoing.send(FromDaemon::Granted { grant: GrantId(1) }).is_ok() {
            sent += 1;
            assert!(sent < 1_000_000, "nobody noticed");
            std::thread::yield_now();
        }
    }
}
