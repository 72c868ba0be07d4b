//! Memory that a disk can read and write without the page cache in between: it has to begin at a multiple of the
//! disk's unit.

/// What addresses, offsets and lengths of direct requests are multiples of.
pub(crate) const UNIT_BYTES: usize = 4096;

/// Bytes of a fixed size that begin at a multiple of [`UNIT_BYTES`].
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// All zero.
    pub(crate) fn new(bytes: usize) -> Buffer {
        let memory = vec![0; bytes + UNIT_BYTES];
        let start = memory.as_ptr().align_offset(UNIT_BYTES);
        // align_offset may give up in theory, and answers usize::MAX then: a slice out of bounds, and a panic.
        assert!(start < UNIT_BYTES, "an address has a next multiple of {UNIT_BYTES}");
        Buffer { memory, start, bytes }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_where_a_disk_can_write() {
        for bytes in [1, UNIT_BYTES, 3 * UNIT_BYTES + 1] {
            let mut buffer = Buffer::new(bytes);
            assert_eq!(buffer.bytes().len(), bytes);
            assert!((buffer.bytes().as_ptr() as usize).is_multiple_of(UNIT_BYTES));
        }
    }
}
