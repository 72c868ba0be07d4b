//! How many connections there are, and whose. Each is a thread and a few files, so there is an end to them; one user who
//! has too many must not keep others out, and nobody keeps out root and whoever runs the daemon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections at a time: tenants, those that linger, jobs, and people who ask.
const CONNECTIONS_MAX: usize = 1024;

/// Of these for users whom the daemon does not belong to.
const OTHERS_MAX: usize = CONNECTIONS_MAX - 64;

/// For one such user.
const USER_MAX: usize = CONNECTIONS_MAX / 4;

/// Whose connections there are.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    /// Who runs the daemon.
    owner: u32,
    by_user: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// One connection; gone when dropped.
#[derive(Debug)]
pub(super) struct Guest {
    uid: u32,
    guests: Guests,
}

impl Guests {
    pub(super) fn of(owner: u32) -> Self {
        Self { owner, by_user: Arc::default() }
    }

    /// One more, or why not.
    pub(super) fn admit(&self, uid: u32) -> Result<Guest, String> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = by_user.values().sum();
        let (own, at_home) = (by_user.get(&uid).copied().unwrap_or(0), [0, self.owner].contains(&uid));
        if all >= if at_home { CONNECTIONS_MAX } else { OTHERS_MAX } {
            return Err(format!("there are {all} connections already"));
        }
        if !at_home && own >= USER_MAX {
            return Err(format!(
                "user {uid} has {own} connections already, and one user may have {USER_MAX}"
            ));
        }
        by_user.insert(uid, own + 1);
        Ok(Guest { uid, guests: self.clone() })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut by_user = self.guests.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        match by_user.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_user.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_keeps_nobody_out() {
        let guests = Guests::of(7);
        let mut many: Vec<Guest> = (0..USER_MAX).map(|_| guests.admit(1000).unwrap()).collect();
        let refused = guests.admit(1000).unwrap_err();
        assert_eq!(refused, "user 1000 has 256 connections already, and one user may have 256");
        let other = guests.admit(1001).unwrap();
        many.pop();
        let again = guests.admit(1000).unwrap();
        assert!(guests.admit(1000).is_err());
        drop((many, other, again));
        assert!(guests.by_user.lock().unwrap().is_empty(), "all are gone");
    }

    #[test]
    fn all_users_together_leave_room_for_root_and_the_owner() {
        let guests = Guests::of(7);
        let crowd: Vec<Guest> = (0..OTHERS_MAX)
            .map(|number| guests.admit(1000 + number as u32 / USER_MAX as u32).unwrap())
            .collect();
        assert!(guests.admit(2000).is_err());
        let home: Vec<Guest> = (OTHERS_MAX..CONNECTIONS_MAX)
            .map(|number| guests.admit(if number % 2 == 0 { 0 } else { 7 }).unwrap())
            .collect();
        assert!(guests.admit(0).is_err(), "there is an end for everybody");
        drop((crowd, home));
    }
}
