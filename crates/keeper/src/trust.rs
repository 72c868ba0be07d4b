//! Who may be at the other end of the socket. The arena has everybody's bytes: a worker reads them, and to a keeper they are
//! given.

use rustix::process::{Uid, geteuid};

/// Whether a process of this user may have what this process has: one of its own user's, or root's.
pub fn may_have_everything(user: Uid) -> bool {
    is_own_or_root(user, geteuid())
}

fn is_own_or_root(user: Uid, owner: Uid) -> bool {
    user == owner || user.is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_root_may() {
        let (root, owner, other) = (Uid::ROOT, Uid::from_raw(1000), Uid::from_raw(1001));
        assert!(is_own_or_root(owner, owner) && is_own_or_root(root, owner) && is_own_or_root(root, root));
        assert!(!is_own_or_root(other, owner) && !is_own_or_root(owner, root));
        assert!(may_have_everything(geteuid()));
    }
}
