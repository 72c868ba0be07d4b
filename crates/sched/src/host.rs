//! What a tenant has in the host's memory, mapped at addresses of its device: it lies there whoever's turn it is, so it
//! never moves, and takes nothing of the device.

use crate::{Bytes, HandleId, RequestId};
use std::collections::BTreeMap;

/// The host's memory in the hands of one tenant. The sum is kept beside the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hosted {
    /// Set aside for requests whose other part waits for the device.
    waiting: BTreeMap<RequestId, Bytes>,
    /// Granted, and not used yet.
    granted: BTreeMap<RequestId, Bytes>,
    handles: BTreeMap<HandleId, Bytes>,
    /// For handles that may come here, or may be here.
    reserved: Bytes,
    sum: Bytes,
}

impl Hosted {
    /// All of it: set aside, granted and used.
    pub(crate) fn sum(&self) -> Bytes {
        self.sum
    }

    /// The same, without what is reserved for handles that may come here.
    pub(crate) fn own_sum(&self) -> Bytes {
        self.sum - self.reserved
    }

    /// What is only set aside: nobody can have made anything of it.
    pub(crate) fn set_aside_sum(&self) -> Bytes {
        self.waiting.values().copied().sum()
    }

    /// Does anything of a request lie here, or wait to?
    pub(crate) fn knows(&self, request: RequestId) -> bool {
        self.waiting.contains_key(&request) || self.granted.contains_key(&request)
    }

    /// What a grant has left.
    pub(crate) fn granted(&self, request: RequestId) -> Option<Bytes> {
        self.granted.get(&request).copied()
    }

    /// Is this a handle that lies here?
    pub(crate) fn has(&self, handle: HandleId) -> bool {
        self.handles.contains_key(&handle)
    }

    /// The handles that lie here, with their sizes.
    pub(crate) fn handles(&self) -> &BTreeMap<HandleId, Bytes> {
        &self.handles
    }

    /// Bytes for handles that may come here from the device.
    pub(crate) fn reserve(&mut self, bytes: Bytes) {
        self.reserved += bytes;
        self.sum += bytes;
    }

    /// They have come, or do not.
    pub(crate) fn unreserve(&mut self, bytes: Bytes) {
        self.reserved -= bytes;
        self.sum -= bytes;
    }

    /// Sets bytes aside for a request whose other part waits.
    pub(crate) fn set_aside(&mut self, request: RequestId, bytes: Bytes) {
        self.waiting.insert(request, bytes);
        self.sum += bytes;
    }

    /// What waited may be used. Returns how much that is, if anything waited.
    pub(crate) fn release(&mut self, request: RequestId) -> Option<Bytes> {
        let bytes = self.waiting.remove(&request)?;
        self.granted.insert(request, bytes);
        Some(bytes)
    }

    /// Grants bytes, beside what waits for the same request, which goes with them. Returns how much that is together.
    pub(crate) fn grant(&mut self, request: RequestId, bytes: Bytes) -> Bytes {
        let all = self.waiting.remove(&request).unwrap_or_default() + bytes;
        self.granted.insert(request, all);
        self.sum += bytes;
        all
    }

    /// A grant, or a part of it, became a handle. False if it cannot have.
    pub(crate) fn claim(&mut self, request: RequestId, handle: HandleId, bytes: Bytes) -> bool {
        let left = self.granted.get(&request).and_then(|granted| granted.0.checked_sub(bytes.0));
        let Some(left) = left.filter(|_| bytes > Bytes::ZERO && !self.has(handle)) else { return false };
        match left {
            0 => self.granted.remove(&request),
            left => self.granted.insert(request, Bytes(left)),
        };
        self.handles.insert(handle, bytes);
        true
    }

    /// A handle was here before. It counts as so much.
    pub(crate) fn find(&mut self, handle: HandleId, bytes: Bytes) {
        self.handles.insert(handle, bytes);
        self.sum += bytes;
    }

    /// A request is not wanted any more, or what is left of its grant.
    pub(crate) fn take_back(&mut self, request: RequestId) {
        for left in [self.waiting.remove(&request), self.granted.remove(&request)].into_iter().flatten() {
            self.sum -= left;
        }
    }

    /// A handle is gone. False if none of that name lay here.
    pub(crate) fn free(&mut self, handle: HandleId) -> bool {
        let freed = self.handles.remove(&handle);
        self.sum -= freed.unwrap_or_default();
        freed.is_some()
    }

    /// Is the sum that of the parts?
    pub(crate) fn adds_up(&self) -> bool {
        let parts = self.waiting.values().chain(self.granted.values()).chain(self.handles.values());
        self.sum == self.reserved + parts.copied().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_used_or_given_back() {
        let (one, other) = (RequestId(1), RequestId(2));
        let mut hosted = Hosted::default();
        hosted.set_aside(one, Bytes(8));
        assert_eq!((hosted.sum(), hosted.granted(one), hosted.knows(one)), (Bytes(8), None, true));
        assert!(!hosted.claim(one, HandleId(1), Bytes(8)), "it is not granted yet");
        assert_eq!(hosted.release(one), Some(Bytes(8)));
        assert_eq!(hosted.release(one), None);
        assert!(hosted.claim(one, HandleId(1), Bytes(6)));
        assert!(!hosted.claim(one, HandleId(1), Bytes(2)), "a name means one handle");
        assert!(!hosted.claim(one, HandleId(2), Bytes(3)), "more than is left");
        hosted.take_back(one);
        assert_eq!((hosted.sum(), hosted.knows(one)), (Bytes(6), false));
        hosted.set_aside(other, Bytes(2));
        assert_eq!(hosted.grant(other, Bytes(3)), Bytes(5));
        assert!(hosted.free(HandleId(1)) && !hosted.free(HandleId(1)));
        assert!(hosted.sum() == Bytes(5) && hosted.adds_up());
    }
}
