//! The bytes of one copy: from where to where, row by row.

use std::ops::Range;

use crate::space::touch::{CHUNK_BYTES, Fault, Touch};

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program's memory.
    Host(u64),
    /// Addresses that the device knows.
    Device(u64),
    /// Bytes that were taken from the program when the copy was asked for: all of them, row after row.
    Staged(Vec<u8>),
}

/// A box of bytes and where its rows lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// From.
    pub source: End,
    /// To.
    pub target: End,
    /// The box: bytes of a row, rows, slices.
    pub shape: [u64; 3],
    /// Bytes from row to row and from slice to slice, in the source.
    pub source_steps: [u64; 2],
    /// The same in the target.
    pub target_steps: [u64; 2],
}

impl Transfer {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Moves some of the bytes, counted row after row.
    pub fn pass(&self, mut range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let mut buffer = Vec::new();
        while !range.is_empty() {
            let length = self.run_from(range.start).min(range.end - range.start).min(CHUNK_BYTES as u64);
            if let (End::Host(from), End::Device(to)) = (&self.source, &self.target) {
                let host = self.place(*from, range.start, self.source_steps);
                memory.fill_from_host(self.place(*to, range.start, self.target_steps), host, length)?;
                range.start += length;
                continue;
            }
            if let (End::Device(from), End::Host(to)) = (&self.source, &self.target) {
                let host = self.place(*to, range.start, self.target_steps);
                memory.send_to_host(self.place(*from, range.start, self.source_steps), host, length)?;
                range.start += length;
                continue;
            }
            if buffer.len() < length as usize {
                buffer.resize(length as usize, 0);
            }
            let bytes = &mut buffer[..length as usize];
            match &self.source {
                End::Host(base) => {
                    memory.host_read(self.place(*base, range.start, self.source_steps), bytes)?;
                }
                End::Device(base) => memory.read(self.place(*base, range.start, self.source_steps), bytes)?,
                End::Staged(staged) => {
                    let start = range.start as usize;
                    bytes.copy_from_slice(&staged[start..start + length as usize]);
                }
            }
            match &self.target {
                End::Host(base) => {
                    memory.host_write(self.place(*base, range.start, self.target_steps), bytes)?;
                }
                End::Device(base) => {
                    memory.write(self.place(*base, range.start, self.target_steps), bytes)?;
                }
                End::Staged(_) => unreachable!("nothing is copied into staged bytes"),
            }
            range.start += length;
        }
        Ok(())
    }

    /// How many bytes from there on lie in a row at both ends.
    fn run_from(&self, at: u64) -> u64 {
        let [width, height, _] = self.shape;
        let packed = |steps: [u64; 2]| steps == [width, width * height];
        let both = [(&self.source, self.source_steps), (&self.target, self.target_steps)]
            .iter()
            .all(|(end, steps)| matches!(end, End::Staged(_)) || packed(*steps));
        if both { u64::MAX } else { width - at % width }
    }

    fn place(&self, base: u64, at: u64, steps: [u64; 2]) -> u64 {
        let [width, height, _] = self.shape;
        let (row, column) = (at / width, at % width);
        base.wrapping_add(row / height * steps[1]).wrapping_add(row % height * steps[0]).wrapping_add(column)
    }

    /// Addresses that an end covers.
    pub fn span(&self, end: &End) -> Option<Range<u64>> {
        let (base, steps) = match end {
            End::Host(base) | End::Device(base) => (*base, self.steps_of(end)),
            End::Staged(_) => return None,
        };
        let last = self.bytes().checked_sub(1)?;
        Some(base..self.place(base, last, steps).wrapping_add(1))
    }

    fn steps_of(&self, end: &End) -> [u64; 2] {
        if std::ptr::eq(end, &self.source) { self.source_steps } else { self.target_steps }
    }
}
