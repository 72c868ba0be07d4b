//! What the daemon says to one tenant, sent by a thread of its own.
//!
//! A tenant that does not read, because it is stopped, say, fills its socket. Neither the main loop nor the executor may
//! wait for that: all others would wait with them. An honest tenant has one answer for each of its requests and one order
//! at a time for each of its handles in this queue; one with more than [`QUEUED_MAX`] is hung up on.

use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use wire::{Connection, FromDaemon, WireError};

/// Far more than any program has handles.
const QUEUED_MAX: usize = 1 << 20;

/// What a file counts as among them: far more than any program opens before it looks.
const FILE_WEIGHT: usize = 64;

/// How often a message is tried again that the system has no room for: for five seconds.
const TRIES_MAX: usize = 500;
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// How long the end of this process waits for one tenant to take its last word.
const LAST_WORD_WITHIN: Duration = Duration::from_millis(20);

/// With its files.
type Message = (FromDaemon, Vec<Arc<OwnedFd>>);

/// To a tenant. Cheap to clone; the thread ends with the last clone, or when the tenant cannot be reached.
#[derive(Clone, Debug)]
pub struct Outgoing {
    connection: Arc<Connection>,
    queue: Sender<Message>,
    queued: Arc<AtomicUsize>,
}

/// The tenant cannot be reached any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// What a tenant hears before anything else.
#[derive(Debug)]
pub struct FirstWord(Sender<Option<Message>>);

impl FirstWord {
    /// Says it.
    pub fn say(self, message: FromDaemon, files: Vec<Arc<OwnedFd>>) {
        // One that cannot be reached is about to be noticed by its own thread.
        let _ = self.0.send(Some((message, files)));
    }
}

impl Outgoing {
    /// Begins sending on this connection.
    pub fn start(connection: Arc<Connection>) -> std::io::Result<Self> {
        let (outgoing, first_word) = Self::start_after_word(connection)?;
        let _ = first_word.0.send(None);
        Ok(outgoing)
    }

    /// The same, but all waits until the first word is said, and nothing is sent if it never is.
    pub fn start_after_word(connection: Arc<Connection>) -> std::io::Result<(Self, FirstWord)> {
        let (queue, messages) = mpsc::channel::<Message>();
        let (first_word, first) = mpsc::channel::<Option<Message>>();
        let outgoing = Self { connection: connection.clone(), queue, queued: Arc::default() };
        let queued = outgoing.queued.clone();
        std::thread::Builder::new().name("outgoing".into()).spawn(move || {
            let Ok(first) = first.recv() else { return };
            let messages = messages.into_iter().inspect(|(_, files)| {
                queued.fetch_sub(weight(files), Relaxed);
            });
            for (message, files) in first.into_iter().chain(messages) {
                let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
                if let Err(cause) = persist(|| connection.send(&message, &files)) {
                    tracing::debug!("a tenant cannot be reached: {cause}");
                    // Its conversation notices, and takes it for gone.
                    connection.shut_down();
                    return;
                }
            }
        })?;
        Ok((outgoing, FirstWord(first_word)))
    }

    /// Ends the conversation. The tenant goes on alone if all of its memory is there, and ends if not.
    pub fn hang_up(&self) {
        self.connection.shut_down();
    }

    /// Says something before all that waits to be sent, and waits a moment at most: this process is about to end.
    pub fn last_word(&self, message: &FromDaemon) {
        let within = Some(LAST_WORD_WITHIN);
        let _ = sockopt::set_socket_timeout(&*self.connection, sockopt::Timeout::Send, within);
        let _ = self.connection.send(message, &[]);
    }

    /// Sends a short message by this thread, before all that waits to be sent, or after it if the tenant does not read. Never
    /// waits.
    pub fn send_at_once(&self, message: FromDaemon) -> Result<(), Unreachable> {
        if self.connection.send_at_once(&message) { Ok(()) } else { self.send(message) }
    }

    /// Has a message sent, after those before it. Never waits.
    pub fn send(&self, message: FromDaemon) -> Result<(), Unreachable> {
        self.send_with(message, Vec::new())
    }

    /// The same for one that carries files.
    pub fn send_with(&self, message: FromDaemon, files: Vec<Arc<OwnedFd>>) -> Result<(), Unreachable> {
        let weight = weight(&files);
        if self.queued.fetch_add(weight, Relaxed) >= QUEUED_MAX {
            self.queued.fetch_sub(weight, Relaxed);
            self.hang_up();
            return Err(Unreachable);
        }
        self.queue.send((message, files)).map_err(|_| Unreachable)
    }
}

fn weight(files: &[Arc<OwnedFd>]) -> usize {
    1 + FILE_WEIGHT * files.len()
}

/// Sends a message, again after a while if the system is short of memory, or of files in flight.
fn persist(send: impl Fn() -> Result<(), WireError>) -> Result<(), WireError> {
    for _ in 0..TRIES_MAX {
        match send() {
            Err(WireError::System(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                std::thread::sleep(TRY_AGAIN);
            }
            done => return done,
        }
    }
    send()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use wire::GrantId;

    #[test]
    fn what_the_system_has_no_room_for_is_sent_later() {
        let tries = Cell::new(0);
        let send = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(Errno::TOOMANYREFS.into()) } else { Ok(()) }
        };
        assert!(persist(send).is_ok());
        assert_eq!(tries.get(), 3);
        assert!(persist(|| Err(WireError::Closed)).is_err());
    }

    #[test]
    fn files_that_nobody_takes_have_a_bound() {
        let (daemon, tenant) = Connection::pair().unwrap();
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        let file = Arc::new(rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let mut sent = 0;
        while outgoing.send_with(FromDaemon::Granted { grant: GrantId(1) }, vec![file.clone(); 16]).is_ok() {
            sent += 1;
            assert!(sent < QUEUED_MAX, "there is no end");
        }
        drop(tenant);
    }

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
    fn what_is_urgent_goes_first_and_after_the_others_where_nobody_reads() {
        let (daemon, tenant) = Connection::pair().unwrap();
        let (outgoing, first_word) = Outgoing::start_after_word(Arc::new(daemon)).unwrap();
        outgoing.send(FromDaemon::Granted { grant: GrantId(1) }).unwrap();
        outgoing.send_at_once(FromDaemon::WarmUp).unwrap();
        assert_eq!(tenant.receive::<FromDaemon>().unwrap().0, FromDaemon::WarmUp);
        let mut at_once = 0;
        while outgoing.connection.send_at_once(&FromDaemon::WarmUp) {
            at_once += 1;
        }
        outgoing.send_at_once(FromDaemon::Granted { grant: GrantId(2) }).unwrap();
        first_word.say(FromDaemon::Granted { grant: GrantId(0) }, Vec::new());
        let heard = std::iter::from_fn(|| tenant.receive::<FromDaemon>().ok().map(|(message, _)| message));
        let others: Vec<FromDaemon> = heard.skip(at_once).take(3).collect();
        assert_eq!(others, [0, 1, 2].map(|grant| FromDaemon::Granted { grant: GrantId(grant) }));
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
