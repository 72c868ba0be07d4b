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
    /// None while the daemon has not answered.
    requests: HashMap<GrantId, Option<Answer>>,
}

impl Grants {
    /// A new request, not answered yet.
    pub(crate) fn open(&self) -> GrantId {
        let grant = GrantId(self.next.fetch_add(1, Relaxed));
        lock(&self.open).requests.insert(grant, None);
        grant
    }

    /// Waits for the answer, and forgets the request. The calling thread must hold no lock.
    pub(crate) fn wait(&self, grant: GrantId) -> Answer {
        let mut open = lock(&self.open);
        loop {
            match open.requests.get_mut(&grant).map(Option::take) {
                Some(None) if !open.ended => {}
                Some(answer) => {
                    open.requests.remove(&grant);
                    return answer.unwrap_or(Answer::Ended);
                }
                None => return Answer::Ended,
            }
            open = self.answered.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The daemon answered. An answer to a request that was never made is passed over.
    pub(crate) fn settle(&self, grant: GrantId, answer: Answer) {
        if let Some(request) = lock(&self.open).requests.get_mut(&grant) {
            *request = Some(answer);
        }
        self.answered.notify_all();
    }

    /// There will be no more answers.
    pub(crate) fn end(&self) {
        lock(&self.open).ended = true;
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
}
