//! How many files those hold here who tell of their memory, and whose: the daemon must have files left for everybody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One user may have this part of them.
const SHARE_OF_A_USER: usize = 2;

/// For all connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Files {
    /// For all together. Somebody who is alone may have twice as many: a large program is to come back somehow.
    most: usize,
    by_user: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// The files of one connection; given back when dropped.
#[derive(Debug)]
pub struct Held {
    uid: u32,
    count: usize,
    files: Files,
}

impl Files {
    /// A quarter of what this process may have open.
    pub fn of_this_process() -> Self {
        let open_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::new(open_max.map_or(usize::MAX / 2, |most| usize::try_from(most / 4).unwrap_or(usize::MAX / 2)))
    }

    fn new(most: usize) -> Self {
        Self { most, by_user: Arc::default() }
    }

    /// None yet, for a connection of this user.
    pub fn hold_none(&self, uid: u32) -> Held {
        Held { uid, count: 0, files: self.clone() }
    }
}

impl Held {
    /// So many more. False if they are too many, and nothing has changed.
    pub fn hold(&mut self, more: usize) -> bool {
        let Files { most, by_user } = &self.files;
        let mut by_user = by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let all = by_user.values().sum::<usize>() + more;
        let own = by_user.get(&self.uid).copied().unwrap_or(0) + more;
        let is_alone = all == self.count + more && all <= 2 * most;
        if !is_alone && (all > *most || own > most / SHARE_OF_A_USER) {
            return false;
        }
        if more > 0 {
            by_user.insert(self.uid, own);
            self.count += more;
        }
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut by_user = self.files.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        match by_user.get_mut(&self.uid) {
            Some(count) if *count > self.count => *count -= self.count,
            _ if self.count > 0 => drop(by_user.remove(&self.uid)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_a_bound_and_each_user_a_share() {
        let files = Files::new(100);
        let [mut first, mut second, mut other] = [1000, 1000, 1001].map(|uid| files.hold_none(uid));
        assert!(first.hold(30) && second.hold(20));
        assert!(!second.hold(1), "its user has a half");
        assert!(other.hold(50));
        assert!(!files.hold_none(1002).hold(1), "all are taken");
        drop(first);
        assert!(second.hold(30), "what was given back can be had again");
        assert!(files.hold_none(1003).hold(0), "nothing can always be had");
        drop((second, other));
        assert!(files.by_user.lock().unwrap().is_empty());
    }

    #[test]
    fn one_that_is_alone_may_have_more() {
        let files = Files::new(100);
        let mut large = files.hold_none(1000);
        assert!((0..20).all(|_| large.hold(10)));
        assert!(!large.hold(1), "there is an end");
        assert!(!files.hold_none(1001).hold(1));
        drop(large);
        assert!(files.hold_none(1001).hold(1));
    }
}
