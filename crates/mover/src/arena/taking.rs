//! Space for copies out: taken, which is *reserved* in the keeper's words, and given up.

use super::{Arena, ArenaError, Extents, named};
use crate::HandleKey;
use keeper::{Outcome, Reservation, Wanted};

/// Space for a copy out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) extents: Extents,
    /// It is the place of the handle's clean copy. From now on that counts for nothing until it is recorded again.
    pub(crate) reused: bool,
}

impl Arena {
    /// Takes space for a handle, if there is enough that is ready and free, however scattered it is: that of its clean copy,
    /// if it has one. Otherwise other clean copies give way, the oldest first.
    pub(crate) fn take(&self, key: HandleKey, bytes: u64) -> Result<Option<Taken>, ArenaError> {
        let (near, wanted) = (self.1, [Wanted { key: named(key), bytes }]);
        let reserved = self.0.link.ask(|client| {
            let first = client.reserve(near, &wanted)?;
            let &[Reservation::NoSpace(lack)] = &first[..] else { return Ok(first) };
            let short_bytes = lack.missing_bytes.saturating_sub(lack.free_bytes);
            // What it has itself is worth nothing for it if it goes.
            let own_bytes = bytes.saturating_sub(lack.missing_bytes);
            // Nothing goes for what would not fit all the same.
            if short_bytes > lack.clean_bytes.saturating_sub(own_bytes) {
                return Ok(first);
            }
            client.drop_clean(short_bytes, Some(named(key)))?;
            client.reserve(near, &wanted)
        })?;
        match reserved.into_iter().next() {
            Some(Reservation::Space { extents, reused }) => {
                Ok(Some(Taken { extents: Extents::new(extents), reused }))
            }
            Some(Reservation::NoSpace(_)) | None => Ok(None),
            Some(Reservation::Refused(outcome)) => Err(ArenaError::Refused(outcome)),
        }
    }

    /// Takes space for the first of these handles, as far as there is some for one after the other. No clean copy gives way.
    pub(crate) fn take_in_order(&self, handles: &[(HandleKey, u64)]) -> Result<Vec<Taken>, ArenaError> {
        let wanted: Vec<Wanted> =
            handles.iter().map(|&(key, bytes)| Wanted { key: named(key), bytes }).collect();
        self.0.link.ask(|client| {
            let reserved = client.reserve(self.1, &wanted)?;
            let space = |reservation: &Reservation| match reservation {
                Reservation::Space { extents, reused } => {
                    Some(Taken { extents: Extents::new(extents.clone()), reused: *reused })
                }
                Reservation::NoSpace(_) | Reservation::Refused(_) => None,
            };
            let first: Vec<Taken> = reserved.iter().map_while(space).collect();
            // Smaller ones behind would keep a large one waiting.
            let behind = wanted.iter().zip(&reserved).skip(first.len());
            let behind = behind.filter(|(_, reservation)| matches!(reservation, Reservation::Space { .. }));
            let behind: Vec<keeper::HandleKey> = behind.map(|(wanted, _)| wanted.key).collect();
            if !behind.is_empty() {
                client.cancel(&behind)?;
            }
            Ok(first)
        })
    }

    /// Other space for a handle that has some in which nothing is under way: there is nothing of its clean copy in it that
    /// counts. No other mover comes between.
    pub(crate) fn retake(&self, key: HandleKey, bytes: u64) -> Result<Extents, ArenaError> {
        let (near, wanted) = (self.1, [Wanted { key: named(key), bytes }]);
        let (cancelled, reserved) = self.0.link.ask(|client| {
            let cancelled = client.cancel(&[named(key)])?;
            Ok((cancelled, client.reserve(near, &wanted)?))
        })?;
        match reserved.into_iter().next() {
            Some(Reservation::Space { extents, .. }) => Ok(Extents::new(extents)),
            Some(Reservation::Refused(outcome)) => Err(ArenaError::Refused(outcome)),
            Some(Reservation::NoSpace(_)) | None => {
                Err(ArenaError::Refused(cancelled.first().copied().unwrap_or(Outcome::NotReserved)))
            }
        }
    }

    /// A copy out will not be used, and nothing writes there any more.
    pub(crate) fn cancel(&self, key: HandleKey) {
        self.tell("cannot give up space", |client| client.cancel(&[named(key)]));
    }

    /// The same of several.
    pub(crate) fn cancel_all(&self, keys: &[HandleKey]) {
        let keys: Vec<keeper::HandleKey> = keys.iter().map(|&key| named(key)).collect();
        self.tell("cannot give up space", |client| client.cancel(&keys));
    }
}
