//! The 64 bytes that programs hand to each other.

use cuda::types::CUipcMemHandle;
use wire::Token;

/// How rota's names begin. The driver's own do not look like text.
const MARK: [u8; 8] = *b"rota-ipc";

/// What a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The range of the allocation, as the daemon knows it.
    pub(crate) token: Token,
    /// Where the allocation begins in it.
    pub(crate) offset: u64,
    /// The size of the allocation.
    pub(crate) bytes: u64,
}

impl Name {
    /// What these bytes say; None if they are not rota's.
    pub(super) fn of(name: &CUipcMemHandle) -> Option<Self> {
        let (mark, rest) = name.bytes.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (bytes, _) = rest.split_first_chunk()?;
        (*mark == MARK).then(|| Self {
            token: Token(u128::from_le_bytes(*token)),
            offset: u64::from_le_bytes(*offset),
            bytes: u64::from_le_bytes(*bytes),
        })
    }

    /// As bytes.
    pub(super) fn bytes(&self) -> CUipcMemHandle {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..24].copy_from_slice(&self.token.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        CUipcMemHandle { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_was_put_into_it_and_the_drivers_say_nothing() {
        let name = Name { token: Token(0x0123_4567_89ab_cdef << 60), offset: 512, bytes: u64::MAX };
        assert_eq!(Name::of(&name.bytes()), Some(name));
        for bytes in [[0; 64], [0x5a; 64]] {
            assert_eq!(Name::of(&CUipcMemHandle { bytes }), None);
        }
    }
}
