//! The seed: what a daemon draws once, and whoever takes over from it needs to read its hashes.

use std::fmt;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The kernel gave no random bytes.
    #[error(
        "the kernel gives no random bytes for the seed of hashes: {0}; without one, hashing has to stay off"
    )]
    Kernel(#[from] Errno),
    /// It gave fewer than it always does.
    #[error("the kernel gave {0} random bytes instead of {n} for the seed of hashes", n = Seed::BYTES)]
    Short(usize),
}

/// 256 random bits. It is as secret as the bytes of tenants: see the crate's documentation.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; Seed::BYTES]);

impl Seed {
    /// How long it is.
    pub const BYTES: usize = 32;

    /// A new one, from the kernel.
    pub fn random() -> Result<Seed, SeedError> {
        let mut bytes = [0; Self::BYTES];
        // Up to 256 bytes come all at once, and no signal comes between, once the kernel's generator has begun.
        let got = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        if got == Self::BYTES { Ok(Seed(bytes)) } else { Err(SeedError::Short(got)) }
    }

    /// One that was kept.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Seed {
        Seed(bytes)
    }

    /// For keeping.
    pub const fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.0
    }
}

impl fmt::Debug for Seed {
    /// Logs are read by more people than may know it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_are_kept_and_are_not_shown() {
        let (one, other) = (Seed::random().unwrap(), Seed::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(Seed::from_bytes(one.to_bytes()), one);
        assert_eq!(format!("{one:?}"), "Seed(..)");
    }
}
