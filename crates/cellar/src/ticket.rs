//! Tickets: what it takes, besides file and key, to get a block back.

use crate::pack::Method;
use crate::seal::{TAG_BYTES, Version};
use crate::space::Extent;
use crate::{BLOCK_BYTES_MAX, BlockId, GRANULE_BYTES};
use serde::{Deserialize, Serialize};

/// The most runs that a block is spread over: all of them single granules.
pub(crate) const EXTENTS_MAX: usize = BLOCK_BYTES_MAX / GRANULE_BYTES as usize;
/// The longest that a ticket's bytes can be. Most have about 70.
pub const TICKET_BYTES_MAX: usize = 768;

/// Bytes that are no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// They cannot be read.
    #[error("these {bytes} bytes are no ticket of a cellar: {why}")]
    Malformed {
        /// How many there are.
        bytes: usize,
        /// What is wrong.
        why: String,
    },
    /// They can be read, but no cellar gives out such a ticket.
    #[error("the ticket of {block} cannot be true: {why}")]
    Impossible {
        /// Whose it says it is.
        block: BlockId,
        /// What is wrong.
        why: &'static str,
    },
}

/// A block in the cellar. With the cellar's file and key it is all that is needed to get the block back, so whoever
/// outlives the cellar's process keeps tickets. It is no secret, but whoever may change it decides what is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    pub(crate) block: BlockId,
    pub(crate) version: Version,
    pub(crate) plain_bytes: u32,
    /// None if the block is all zero: then nothing of it is on the disk.
    pub(crate) sealed: Option<Sealed>,
}

/// The bytes of a block on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    pub(crate) method: Method,
    /// How long it is packed. On the disk it is filled up to the disk's unit.
    pub(crate) packed_bytes: u32,
    pub(crate) extents: Vec<Extent>,
    pub(crate) tag: [u8; TAG_BYTES],
}

impl Ticket {
    /// Which block it is.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// How long the block is.
    pub fn plain_bytes(&self) -> usize {
        self.plain_bytes as usize
    }

    /// How much of the file it takes.
    pub fn disk_bytes(&self) -> u64 {
        self.extents().iter().map(|run| run.bytes).sum()
    }

    /// Where it lies in the file, in the order of its bytes.
    pub fn extents(&self) -> &[Extent] {
        self.sealed.as_ref().map_or(&[], |sealed| &sealed.extents)
    }

    /// For whoever keeps it.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a ticket has nothing that postcard cannot write")
    }

    /// Reads what [`Ticket::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket, TicketError> {
        let malformed = |why: String| TicketError::Malformed { bytes: bytes.len(), why };
        if bytes.len() > TICKET_BYTES_MAX {
            return Err(malformed(format!("there are at most {TICKET_BYTES_MAX}")));
        }
        let (ticket, rest) =
            postcard::take_from_bytes::<Ticket>(bytes).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} are left over", rest.len())));
        }
        ticket.check()?;
        Ok(ticket)
    }

    /// Whether a cellar could have given it out, as far as it can tell by itself.
    pub(crate) fn check(&self) -> Result<(), TicketError> {
        let impossible = |why| Err(TicketError::Impossible { block: self.block, why });
        if self.plain_bytes == 0 || self.plain_bytes() > BLOCK_BYTES_MAX {
            return impossible("no block has this size");
        }
        let Some(sealed) = &self.sealed else { return Ok(()) };
        if sealed.packed_bytes == 0 || sealed.packed_bytes > self.plain_bytes {
            return impossible("packing makes no block larger, and none vanish");
        }
        if sealed.method == Method::Plain && sealed.packed_bytes != self.plain_bytes {
            return impossible("it is not packed, and has another size all the same");
        }
        if sealed.extents.len() > EXTENTS_MAX {
            return impossible("it has more runs than a block has granules");
        }
        let is_whole = |run: &Extent| {
            run.bytes > 0 && (run.offset | run.bytes).is_multiple_of(GRANULE_BYTES) && run.end().is_some()
        };
        if !sealed.extents.iter().all(is_whole) {
            return impossible("its runs are not whole granules");
        }
        let room = sealed.extents.iter().try_fold(0u64, |sum, run| sum.checked_add(run.bytes));
        if room != Some(u64::from(sealed.packed_bytes).next_multiple_of(GRANULE_BYTES)) {
            return impossible("its runs do not add up to its size");
        }
        Ok(())
    }

    /// Everything but the tag, which the tag vouches for.
    pub(crate) fn bound(&self) -> Vec<u8> {
        let sealed = self.sealed.as_ref();
        let rest = sealed.map(|sealed| (sealed.method, sealed.packed_bytes, &sealed.extents));
        postcard::to_stdvec(&(self.block, self.version, self.plain_bytes, rest))
            .expect("a ticket has nothing that postcard cannot write")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version() -> Version {
        postcard::from_bytes(&[9; 17]).expect("sixteen bytes and a count")
    }

    fn ticket() -> Ticket {
        Ticket {
            block: BlockId { tenant: 3, handle: 300, index: 2 },
            version: version(),
            plain_bytes: BLOCK_BYTES_MAX as u32,
            sealed: Some(Sealed {
                method: Method::Zstd,
                packed_bytes: 70_000,
                extents: vec![
                    Extent { offset: 0, bytes: GRANULE_BYTES },
                    Extent { offset: 5 * GRANULE_BYTES, bytes: GRANULE_BYTES },
                ],
                tag: [0xEE; TAG_BYTES],
            }),
        }
    }

    /// A keeper may be older than the cellar that reads its tickets: these bytes stay.
    #[test]
    fn its_bytes_are_fixed() {
        let mut expected = vec![3, 0xAC, 2, 2];
        expected.extend([9; 17]);
        expected.extend([0x80, 0x80, 0x80, 1, 1, 1, 0xF0, 0xA2, 4]);
        expected.extend([2, 0, 0x80, 0x80, 4, 0x80, 0x80, 20, 0x80, 0x80, 4]);
        expected.extend([0xEE; TAG_BYTES]);
        assert_eq!(ticket().to_bytes(), expected);
        assert_eq!(Ticket::from_bytes(&expected), Ok(ticket()));
    }

    #[test]
    fn the_longest_fits() {
        let mut longest = ticket();
        longest.block = BlockId { tenant: u32::MAX, handle: u64::MAX, index: u32::MAX };
        let sealed = longest.sealed.as_mut().expect("it is sealed");
        sealed.packed_bytes = BLOCK_BYTES_MAX as u32;
        let far = |granule| Extent { offset: (1 << 48) + granule * 2 * GRANULE_BYTES, bytes: GRANULE_BYTES };
        sealed.extents = (0..EXTENTS_MAX as u64).map(far).collect();
        assert!(longest.to_bytes().len() <= TICKET_BYTES_MAX, "{}", longest.to_bytes().len());
        assert_eq!(Ticket::from_bytes(&longest.to_bytes()), Ok(longest));
    }

    #[test]
    fn what_no_cellar_gives_out_is_refused() {
        type Change = fn(&mut Ticket);
        let changes: [Change; 9] = [
            |ticket| ticket.plain_bytes = 0,
            |ticket| ticket.plain_bytes = BLOCK_BYTES_MAX as u32 + 1,
            |ticket| ticket.sealed.as_mut().expect("sealed").packed_bytes = 0,
            |ticket| ticket.sealed.as_mut().expect("sealed").packed_bytes = BLOCK_BYTES_MAX as u32 + 1,
            |ticket| ticket.sealed.as_mut().expect("sealed").method = Method::Plain,
            |ticket| ticket.sealed.as_mut().expect("sealed").extents.truncate(1),
            |ticket| ticket.sealed.as_mut().expect("sealed").extents[0].bytes = u64::MAX,
            |ticket| ticket.sealed.as_mut().expect("sealed").extents[0].offset = 4096,
            |ticket| ticket.sealed.as_mut().expect("sealed").extents[0].offset = u64::MAX - GRANULE_BYTES + 1,
        ];
        for change in changes {
            let mut ticket = ticket();
            change(&mut ticket);
            let read = Ticket::from_bytes(&ticket.to_bytes());
            assert!(matches!(read, Err(TicketError::Impossible { .. })), "{read:?}");
        }
        let mut longer = ticket().to_bytes();
        longer.push(0);
        assert!(matches!(Ticket::from_bytes(&longer), Err(TicketError::Malformed { .. })));
        let too_long = vec![0; TICKET_BYTES_MAX + 1];
        assert!(matches!(Ticket::from_bytes(&too_long), Err(TicketError::Malformed { .. })));
    }

    #[test]
    fn all_but_the_tag_is_bound() {
        let ticket = ticket();
        let mut other = ticket.clone();
        other.sealed.as_mut().expect("sealed").tag = [0; TAG_BYTES];
        assert_eq!(ticket.bound(), other.bound());
        other.sealed.as_mut().expect("sealed").extents[1].offset += GRANULE_BYTES;
        assert_ne!(ticket.bound(), other.bound());
        let other = Ticket { block: BlockId { index: 1, ..ticket.block }, ..ticket.clone() };
        assert_ne!(ticket.bound(), other.bound());
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(ticket) = Ticket::from_bytes(&bytes) {
                prop_assert_eq!(ticket.check(), Ok(()));
            }
        }
    }
}
