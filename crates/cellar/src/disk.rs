//! What is needed of a disk, and requests that are carried out whole.
//!
//! [`LocalFile`] is the real one. Tests have one in memory that fails as it is told.

#[cfg(test)]
pub(crate) mod faulty;
pub mod file_system;
mod local_file;

pub use local_file::{FileError, LocalFile};

use crate::buffer::UNIT_BYTES;
use crate::space::Extent;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// One file, used by several threads at once. Offsets, lengths and addresses are multiples of 4 KiB.
pub trait Disk: Send + Sync {
    /// Writes some of these bytes, and says how many. They are not on their way any more: an error that shows later is
    /// nobody's.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Reads some bytes, and says how many.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Gets room for a part of the file, if the file system can promise it.
    fn allocate(&self, part: Extent) -> io::Result<()>;
    /// Gives the room of a part of the file back; what was there is gone.
    fn release(&self, part: Extent) -> io::Result<()>;
    /// What the file system could still give.
    fn available_bytes(&self) -> io::Result<u64>;
    /// Where the file ends: nothing was ever written beyond.
    fn length_bytes(&self) -> io::Result<u64>;
    /// Another descriptor of the same file.
    fn duplicate(&self) -> io::Result<OwnedFd>;
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Writes bytes into these runs, one after the other. What is written when it fails is of no use.
pub(crate) fn write_all(disk: &dyn Disk, bytes: &[u8], extents: &[Extent]) -> io::Result<()> {
    let mut rest = bytes;
    for run in extents {
        let (mut part, later) = rest.split_at(rest.len().min(run.bytes as usize));
        rest = later;
        let mut offset = run.offset;
        while !part.is_empty() {
            let done = progress(disk.write_at(part, offset), part.len(), ErrorKind::WriteZero)?;
            part = &part[done..];
            offset += done as u64;
        }
    }
    assert!(rest.is_empty(), "the runs have room for all bytes");
    Ok(())
}

/// Fills bytes from these runs, one after the other.
pub(crate) fn read_all(disk: &dyn Disk, bytes: &mut [u8], extents: &[Extent]) -> io::Result<()> {
    let mut rest = bytes;
    for run in extents {
        let (mut part, later) = rest.split_at_mut(rest.len().min(run.bytes as usize));
        rest = later;
        let mut offset = run.offset;
        while !part.is_empty() {
            let length = part.len();
            let done = progress(disk.read_at(part, offset), length, ErrorKind::UnexpectedEof)?;
            part = &mut part[done..];
            offset += done as u64;
        }
    }
    assert!(rest.is_empty(), "the runs have all bytes");
    Ok(())
}

/// How far a request got: whole units, so that the rest can go directly again. An interrupted one got nowhere, and one
/// that gets nowhere without a reason has failed.
fn progress(answer: io::Result<usize>, asked: usize, nothing: ErrorKind) -> io::Result<usize> {
    match answer {
        Ok(done) if done >= asked => Ok(asked),
        Ok(done) => match done / UNIT_BYTES * UNIT_BYTES {
            0 => Err(nothing.into()),
            units => Ok(units),
        },
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::faulty::{Fault, FaultyDisk, On};
    use super::*;
    use crate::GRANULE_BYTES;

    const BYTES: usize = 100 << 10;

    fn extents() -> Vec<Extent> {
        [4, 1].map(|granule| Extent { offset: granule * GRANULE_BYTES, bytes: GRANULE_BYTES }).into()
    }

    fn pattern() -> Vec<u8> {
        (0..BYTES).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn bytes_are_laid_into_runs_in_their_order() {
        let disk = FaultyDisk::new(10 * GRANULE_BYTES);
        write_all(&disk, &pattern(), &extents()).expect("nothing is broken");
        let granule = GRANULE_BYTES as usize;
        assert_eq!(disk.bytes(4 * GRANULE_BYTES, granule), pattern()[..granule]);
        assert_eq!(disk.bytes(GRANULE_BYTES, BYTES - granule), pattern()[granule..]);
        let mut back = vec![0; BYTES];
        read_all(&disk, &mut back, &extents()).expect("nothing is broken");
        assert_eq!(back, pattern());
    }

    #[test]
    fn short_and_interrupted_requests_go_on() {
        let disk = FaultyDisk::new(10 * GRANULE_BYTES);
        disk.fail(On::Write, 0, Fault::Short(UNIT_BYTES + 100));
        disk.fail(On::Write, 1, Fault::Error(libc::EINTR));
        disk.fail(On::Read, 1, Fault::Short(2 * UNIT_BYTES));
        disk.fail(On::Read, 2, Fault::Error(libc::EINTR));
        write_all(&disk, &pattern(), &extents()).expect("it goes on");
        let mut back = vec![0; BYTES];
        read_all(&disk, &mut back, &extents()).expect("it goes on");
        assert_eq!(back, pattern());
        assert_eq!((disk.calls(On::Write), disk.calls(On::Read)), (4, 4));
    }

    #[test]
    fn a_request_that_gets_nowhere_ends() {
        let disk = FaultyDisk::new(10 * GRANULE_BYTES);
        disk.fail(On::Write, 0, Fault::Short(100));
        disk.fail(On::Read, 0, Fault::Short(0));
        let written = write_all(&disk, &pattern(), &extents()).map_err(|error| error.kind());
        assert_eq!(written, Err(ErrorKind::WriteZero));
        let read = read_all(&disk, &mut vec![0; BYTES], &extents()).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        for code in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            assert!(is_full(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for code in [libc::EIO, libc::EROFS, libc::EINVAL] {
            assert!(!is_full(&io::Error::from_raw_os_error(code)), "{code}");
        }
    }
}
