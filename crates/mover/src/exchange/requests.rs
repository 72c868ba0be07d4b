//! How handles are split into requests to tenants.

use super::HANDLES_PER_REQUEST_MAX;
use crate::{HandleKey, Owner};

/// Handles of one request have no more bytes than this together, unless it is a single one.
///
/// A tenant answers a request when it has done all of it, and needs up to a millisecond for a handle. So larger handles
/// go one by one: each is copied while the tenant makes the next, and each makes room while the tenant unmaps the next.
pub(crate) const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Splits handles into requests, in order: one owner each, not too many handles, not too many bytes.
pub(super) fn requests(
    keys: &[HandleKey],
    bytes_max: u64,
    bytes_of: impl Fn(HandleKey) -> u64,
) -> Vec<(Owner, Vec<u64>)> {
    let mut requests: Vec<(Owner, Vec<u64>)> = Vec::new();
    let mut request_bytes = 0;
    for &key in keys {
        let bytes = bytes_of(key);
        match requests.last_mut() {
            Some((owner, handles))
                if *owner == key.owner
                    && handles.len() < HANDLES_PER_REQUEST_MAX
                    && request_bytes + bytes <= bytes_max =>
            {
                handles.push(key.handle);
                request_bytes += bytes;
            }
            _ => {
                requests.push((key.owner, vec![key.handle]));
                request_bytes = bytes;
            }
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner(1);
    const B: Owner = Owner(2);
    const MIB: u64 = 1 << 20;

    fn keys(owner: Owner, handles: std::ops::Range<u64>) -> Vec<HandleKey> {
        handles.map(|handle| HandleKey { owner, handle }).collect()
    }

    #[test]
    fn a_request_has_one_owner() {
        let all = [keys(A, 0..2), keys(B, 0..1), keys(A, 2..3)].concat();
        assert_eq!(
            requests(&all, REQUEST_BYTES_MAX, |_| 2 * MIB),
            [(A, vec![0, 1]), (B, vec![0]), (A, vec![2])]
        );
        assert_eq!(requests(&[], REQUEST_BYTES_MAX, |_| MIB), []);
    }

    #[test]
    fn a_request_has_not_too_many_handles() {
        let many = HANDLES_PER_REQUEST_MAX as u64 + 1;
        let split: Vec<usize> = requests(&keys(A, 0..many), REQUEST_BYTES_MAX, |_| 0)
            .iter()
            .map(|(_, handles)| handles.len())
            .collect();
        assert_eq!(split, [HANDLES_PER_REQUEST_MAX, 1]);
    }

    #[test]
    fn large_handles_go_alone() {
        let sizes = [16, 16, 2, 1024, 2, 2];
        let split = requests(&keys(A, 0..6), REQUEST_BYTES_MAX, |key| sizes[key.handle as usize] * MIB);
        assert_eq!(split, [(A, vec![0, 1]), (A, vec![2]), (A, vec![3]), (A, vec![4, 5])]);
    }
}
