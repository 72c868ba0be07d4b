//! Asking the daemon for bytes, and waiting for its answer for as long as it takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

use wire::GrantId;

use crate::guard::lock;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The bytes may be allocated.
    Granted,
    /// They may, but so many of them in the host's memory.
    GrantedHost(u64),
    /// They may not, and why.
    Denied(String),
    /// The daemon went before it answered.
    Ended,
}

/// The requests that are open.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    next: AtomicU64,
    open: Mutex<Open>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    ended: bool,
    /// How many daemons there were. Requests to those before are not answered any more.
    daemon: u64,
    /// Requests below this number were for those before.
    first: u64,
    /// Each with the daemon that it is for; None while that has not answered.
    requests: HashMap<GrantId, (u64, Option<Answer>)>,
}

impl Grants {
    /// A new request, not answered yet.
    pub(crate) fn open(&self) -> GrantId {
        let mut open = lock(&self.open);
        let (grant, daemon) = (self.number(), open.daemon);
        open.requests.insert(grant, (daemon, None));
        grant
    }

    /// Whether a request was for the daemon that answers now: only that one knows what it has granted.
    pub(crate) fn is_of_now(&self, grant: GrantId) -> bool {
        grant.0 >= lock(&self.open).first
    }

    /// A number for a request that nobody waits for.
    pub(crate) fn number(&self) -> GrantId {
        GrantId(self.next.fetch_add(1, Relaxed))
    }

    /// Waits for the answer, and forgets the request. The calling thread must hold no lock.
    pub(crate) fn wait(&self, grant: GrantId) -> Answer {
        let mut open = lock(&self.open);
        loop {
            let (ended, now) = (open.ended, open.daemon);
            match open.requests.get_mut(&grant).map(|(daemon, answer)| (*daemon, answer.take())) {
                Some((daemon, None)) if !ended && daemon == now => {}
                Some((_, answer)) => {
                    open.requests.remove(&grant);
                    return answer.unwrap_or(Answer::Ended);
                }
                None => return Answer::Ended,
            }
            open = self.answered.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The daemon answered. False if nobody waits for that.
    pub(crate) fn settle(&self, grant: GrantId, answer: Answer) -> bool {
        let mut open = lock(&self.open);
        let now = open.daemon;
        let request = open.requests.get_mut(&grant).filter(|(daemon, _)| *daemon == now);
        let waits = request.map(|(_, awaited)| *awaited = Some(answer)).is_some();
        self.answered.notify_all();
        waits
    }

    /// There will be no more answers.
    pub(crate) fn end(&self) {
        lock(&self.open).ended = true;
        self.answered.notify_all();
    }

    /// A new daemon answers from now on. Whoever asked the one before is answered by nobody.
    pub(crate) fn begin_again(&self) {
        let mut open = lock(&self.open);
        open.ended = false;
        open.daemon += 1;
        open.first = self.next.load(Relaxed);
        self.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_request_gets_its_own_answer() {
        let grants = Grants::default();
        let (first, second) = (grants.open(), grants.open());
        assert_ne!(first, second);
        grants.settle(second, Answer::Denied("full".to_owned()));
        grants.settle(GrantId(99), Answer::Granted);
        grants.settle(first, Answer::Granted);
        assert_eq!(grants.wait(first), Answer::Granted);
        assert_eq!(grants.wait(second), Answer::Denied("full".to_owned()));
    }

    #[test]
    fn the_end_wakes_who_waits_and_keeps_what_was_said() {
        let grants = Arc::new(Grants::default());
        let (open, granted) = (grants.open(), grants.open());
        grants.settle(granted, Answer::Granted);
        let waiting = std::thread::spawn({
            let grants = Arc::clone(&grants);
            move || grants.wait(open)
        });
        grants.end();
        assert_eq!(waiting.join().unwrap(), Answer::Ended);
        assert_eq!(grants.wait(granted), Answer::Granted);
        let late = grants.open();
        assert_eq!(grants.wait(late), Answer::Ended);
    }

    #[test]
    fn a_new_daemon_answers_what_it_was_asked_and_nothing_else() {
        let grants = Grants::default();
        let (old, answered) = (grants.open(), grants.open());
        assert!(grants.settle(answered, Answer::Granted));
        grants.end();
        grants.begin_again();
        assert!(!grants.settle(old, Answer::Granted), "it was asked of another");
        let new = grants.open();
        assert!(grants.settle(new, Answer::Granted));
        assert!(grants.is_of_now(new) && !grants.is_of_now(old) && !grants.is_of_now(answered));
        assert_eq!(grants.wait(old), Answer::Ended);
        assert_eq!((grants.wait(answered), grants.wait(new)), (Answer::Granted, Answer::Granted));
        assert!(!grants.settle(new, Answer::Granted), "it has its answer");
    }
}
