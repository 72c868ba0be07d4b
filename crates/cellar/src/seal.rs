//! Sealing blocks: AES-256-GCM, with a key that is only in memory.
//!
//! A [`Key`] seals nothing itself. Each process that opens a cellar, and each [`SEALS_MAX`] blocks of one, begin a
//! **session**: a key of its own, derived from the cellar's key and a random number. Within a session nonces count up.
//! So no nonce is used twice with a key, also when a process dies and nobody knows how far it had counted.
//!
//! The tag stays with the ticket, in memory: the file has nothing that could vouch for itself. What is sealed is bound to
//! all the rest of its ticket: block, version, size and place. Bytes that were swapped, that are older, or that changed
//! in any bit are refused.

mod locked;

use locked::Locked;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// The size of a key.
pub const KEY_BYTES: usize = 32;
/// The size of a tag.
pub const TAG_BYTES: usize = 16;
/// Blocks that are sealed in one session. With blocks of 2 MiB the chance to tell AES from a random permutation stays
/// below one in 2^30.
pub const SEALS_MAX: u64 = 1 << 32;
/// Sessions of earlier processes whose keys are kept at hand. Beyond that they are derived again, which takes
/// microseconds.
const OTHERS_MAX: usize = 8;
/// What keys are derived for.
const PURPOSE: &[u8] = b"rota cellar: blocks of one session";

/// Why there is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The kernel has no random numbers.
    #[error("the kernel gives no random numbers for a key")]
    NoRandomness,
    /// Memory for a key could not be kept out of swap.
    #[error(
        "cannot lock a page of memory for the key, so that it never reaches a disk: {why}; raise RLIMIT_MEMLOCK"
    )]
    NotLocked {
        /// The kernel's error.
        why: String,
    },
}

/// The bytes do not belong to their ticket, or not to this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// A cellar's key. It lies in locked memory that no core dump and no forked child has, and is overwritten when it is
/// dropped.
pub struct Key(Locked<[u8; KEY_BYTES]>);

impl Key {
    /// A new one.
    pub fn random() -> Result<Key, SealError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(&mut *bytes).map_err(|_| SealError::NoRandomness)?;
        Key::from_bytes(&bytes)
    }

    /// One that another process had.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Result<Key, SealError> {
        Ok(Key(Locked::new(*bytes)?))
    }

    /// What the next process needs. Whoever copies it sees that it never reaches a disk.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn derive(&self, session: SessionId) -> LessSafeKey {
        let expanded = Salt::new(HKDF_SHA256, &session.0).extract(self.bytes());
        let okm = expanded.expand(&[PURPOSE], &AES_256_GCM).expect("a key is shorter than HKDF can give");
        LessSafeKey::new(UnboundKey::from(okm))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// A session's random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct SessionId([u8; 16]);

/// Which sealing of all: never the same twice with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Version {
    session: SessionId,
    count: u64,
}

impl Version {
    fn nonce(self) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&self.count.to_be_bytes());
        Nonce::assume_unique_for_key(bytes)
    }
}

struct Session {
    id: SessionId,
    cipher: Locked<LessSafeKey>,
    next: AtomicU64,
}

impl Session {
    fn of(key: &Key, id: SessionId) -> Result<Session, SealError> {
        Ok(Session { id, cipher: Locked::new(key.derive(id))?, next: AtomicU64::new(0) })
    }
}

/// The key of a cellar with its sessions.
pub(crate) struct Sealer {
    key: Key,
    seals_max: u64,
    current: Mutex<Arc<Session>>,
    others: Mutex<Vec<Arc<Session>>>,
}

impl Sealer {
    /// Begins a session.
    pub(crate) fn new(key: Key) -> Result<Sealer, SealError> {
        Sealer::with_seals(key, SEALS_MAX)
    }

    fn with_seals(key: Key, seals_max: u64) -> Result<Sealer, SealError> {
        let current = Mutex::new(Arc::new(Sealer::begin(&key)?));
        Ok(Sealer { key, seals_max, current, others: Mutex::new(Vec::new()) })
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }

    fn begin(key: &Key) -> Result<Session, SealError> {
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).map_err(|_| SealError::NoRandomness)?;
        Session::of(key, SessionId(id))
    }

    /// A version that nobody has had, and the right to seal once with it.
    pub(crate) fn next(&self) -> Result<Permit, SealError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no two see the last number of a session.
        if current.next.load(Ordering::Relaxed) >= self.seals_max {
            let new = Arc::new(Sealer::begin(&self.key)?);
            let old = std::mem::replace(&mut *current, new);
            self.remember(old);
        }
        let count = current.next.fetch_add(1, Ordering::Relaxed);
        Ok(Permit { version: Version { session: current.id, count }, session: Arc::clone(&current) })
    }

    /// Opens what was sealed as this version, in place.
    pub(crate) fn open(
        &self,
        version: Version,
        bound: &[u8],
        tag: [u8; TAG_BYTES],
        bytes: &mut [u8],
    ) -> Result<Result<(), Broken>, SealError> {
        let session = self.session(version.session)?;
        let tag = Tag::from(tag);
        let opened =
            session.cipher.open_in_place_separate_tag(version.nonce(), Aad::from(bound), tag, bytes, 0..);
        Ok(opened.map(|_| ()).map_err(|_| Broken))
    }

    fn session(&self, id: SessionId) -> Result<Arc<Session>, SealError> {
        {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.id == id {
                return Ok(Arc::clone(&current));
            }
        }
        let known = {
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            others.iter().find(|session| session.id == id).map(Arc::clone)
        };
        if let Some(session) = known {
            return Ok(session);
        }
        let session = Arc::new(Session::of(&self.key, id)?);
        self.remember(Arc::clone(&session));
        Ok(session)
    }

    fn remember(&self, session: Arc<Session>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.len() == OTHERS_MAX {
            others.remove(0);
        }
        others.push(session);
    }
}

/// The right to seal once. It is used up by sealing.
pub(crate) struct Permit {
    version: Version,
    session: Arc<Session>,
}

impl Permit {
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Seals these bytes in place, bound to the others.
    pub(crate) fn seal(self, bound: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let sealed =
            self.session.cipher.seal_in_place_separate_tag(self.version.nonce(), Aad::from(bound), bytes);
        let tag = sealed.expect("a block is shorter than what AES-GCM can seal");
        tag.as_ref().try_into().expect("tags have 16 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn sealer() -> Sealer {
        Sealer::new(Key::random().expect("random")).expect("a page can be locked")
    }

    fn sealed(sealer: &Sealer, bound: &[u8], bytes: &mut [u8]) -> (Version, [u8; TAG_BYTES]) {
        let permit = sealer.next().expect("a session");
        (permit.version(), permit.seal(bound, bytes))
    }

    #[test]
    fn what_is_sealed_can_be_opened_by_whoever_has_the_key() {
        let sealer = sealer();
        let mut bytes = *b"cold";
        let (version, tag) = sealed(&sealer, b"here", &mut bytes);
        assert_ne!(&bytes, b"cold");
        let sealed_bytes = bytes;
        assert_eq!(sealer.open(version, b"here", tag, &mut bytes), Ok(Ok(())));
        assert_eq!(&bytes, b"cold");

        let next = Sealer::new(sealer.into_key()).expect("a page can be locked");
        let mut bytes = sealed_bytes;
        assert_eq!(next.open(version, b"here", tag, &mut bytes), Ok(Ok(())));
        assert_eq!(&bytes, b"cold");
        let mut bytes = sealed_bytes;
        let other = super::tests::sealer();
        assert_eq!(other.open(version, b"here", tag, &mut bytes), Ok(Err(Broken)));
    }

    #[test]
    fn another_place_version_tag_or_bit_is_refused() {
        let sealer = sealer();
        let mut bytes = *b"cold";
        let (version, tag) = sealed(&sealer, b"here", &mut bytes);
        let (newer, _) = sealed(&sealer, b"here", &mut [0; 4]);
        let mut wrong_tag = tag;
        wrong_tag[15] ^= 1;
        let mut wrong_bytes = bytes;
        wrong_bytes[2] ^= 0x80;
        assert_eq!(sealer.open(version, b"there", tag, &mut bytes.clone()), Ok(Err(Broken)));
        assert_eq!(sealer.open(newer, b"here", tag, &mut bytes.clone()), Ok(Err(Broken)));
        assert_eq!(sealer.open(version, b"here", wrong_tag, &mut bytes.clone()), Ok(Err(Broken)));
        assert_eq!(sealer.open(version, b"here", tag, &mut wrong_bytes), Ok(Err(Broken)));
        assert_eq!(sealer.open(version, b"here", tag, &mut bytes), Ok(Ok(())));
    }

    /// The same bytes are never the same twice: nobody can tell from the disk that a block did not change.
    #[test]
    fn every_sealing_is_different() {
        let sealer = Sealer::with_seals(Key::random().expect("random"), 3).expect("locked");
        let mut seen = HashSet::new();
        for _ in 0..10 {
            let mut bytes = [0; 32];
            sealed(&sealer, &[], &mut bytes);
            assert!(seen.insert(bytes));
        }
    }

    #[test]
    fn no_version_comes_twice_and_sessions_end() {
        let sealer = Sealer::with_seals(Key::random().expect("random"), 5).expect("locked");
        let mut seen = HashSet::new();
        let mut kept = Vec::new();
        for round in 0..100u8 {
            let mut bytes = [round; 8];
            let (version, tag) = sealed(&sealer, &[], &mut bytes);
            assert!(version.count < 5);
            assert!(seen.insert(version), "version {version:?} came twice");
            kept.push((version, tag, bytes));
        }
        let sessions: HashSet<SessionId> = seen.iter().map(|version| version.session).collect();
        assert_eq!(sessions.len(), 20);
        // More sessions than are kept at hand: all of them open all the same.
        for (round, (version, tag, mut bytes)) in kept.into_iter().enumerate() {
            assert_eq!(sealer.open(version, &[], tag, &mut bytes), Ok(Ok(())));
            assert_eq!(bytes, [round as u8; 8]);
        }
        assert_eq!(sealer.others.lock().expect("no panic").len(), OTHERS_MAX);
    }

    #[test]
    fn threads_never_share_a_version() {
        let sealer = Sealer::with_seals(Key::random().expect("random"), 7).expect("locked");
        let versions: Vec<Version> = std::thread::scope(|scope| {
            let count = || (0..200).map(|_| sealer.next().expect("a session").version()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(versions.iter().collect::<HashSet<_>>().len(), 800);
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = Key::from_bytes(&[0xAB; KEY_BYTES]).expect("locked");
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }
}
