//! Files that the device gives out: it keeps one end, the program has the other.
//!
//! A file is known again by its inode, whoever brings it. When every copy is closed, the end kept here hangs up.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::ServerError;
use crate::machine::FileKind;
use crate::rm::FileKey;

/// Device and inode.
type Inode = (u64, u64);

/// Files that are out.
#[derive(Debug, Default)]
pub(super) struct Files {
    kept: BTreeMap<FileKey, (OwnedFd, Inode)>,
    inodes: BTreeMap<Inode, FileKey>,
}

/// Makes a file: the end to give, and the end to keep.
pub(super) fn make(kind: FileKind) -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    match kind {
        FileKind::Control => {
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        }
        FileKind::Export => {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            Ok((write, read))
        }
    }
}

fn inode(file: &OwnedFd) -> Option<Inode> {
    let status = rustix::fs::fstat(file).ok()?;
    Some((status.st_dev, status.st_ino))
}

impl Files {
    /// A file is about to go out.
    pub(super) fn add(&mut self, key: FileKey, given: &OwnedFd, kept: OwnedFd) -> Result<(), ServerError> {
        let inode = inode(given).ok_or(ServerError::System("fstat", rustix::io::Errno::BADF))?;
        self.inodes.insert(inode, key);
        self.kept.insert(key, (kept, inode));
        Ok(())
    }

    /// The end that was kept.
    pub(super) fn kept(&self, key: FileKey) -> Option<&OwnedFd> {
        self.kept.get(&key).map(|(file, _)| file)
    }

    /// Which file somebody brought; None if it is not from here.
    pub(super) fn known(&self, file: &OwnedFd) -> Option<FileKey> {
        self.inodes.get(&inode(file)?).copied()
    }

    /// Whether every copy is closed; then it is forgotten. What a program writes into its end is thrown away.
    pub(super) fn is_closed(&mut self, key: u64) -> bool {
        let key = FileKey(key);
        let Some((file, inode)) = self.kept.get(&key) else { return false };
        let mut poll = [PollFd::new(file, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut poll, Some(&now));
        if !poll[0].revents().contains(PollFlags::HUP) {
            let mut rubbish = [0; 4096];
            let _ = rustix::io::read(file, &mut rubbish);
            return false;
        }
        self.inodes.remove(inode);
        self.kept.remove(&key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_any_copy_and_closed_with_the_last() {
        for kind in [FileKind::Control, FileKind::Export] {
            let mut files = Files::default();
            let (given, kept) = make(kind).unwrap();
            files.add(FileKey(5), &given, kept).unwrap();
            let copy = given.try_clone().unwrap();
            drop(given);
            assert_eq!(files.known(&copy), Some(FileKey(5)));
            assert!(!poll_closed(&mut files), "{kind:?}: one copy is left");
            drop(copy);
            assert!(poll_closed(&mut files), "{kind:?}");
            assert!(files.kept(FileKey(5)).is_none());
        }
        let (other, _kept) = make(FileKind::Export).unwrap();
        assert_eq!(Files::default().known(&other), None);
    }

    /// Without reading from a file that nobody has closed: that would wait.
    fn poll_closed(files: &mut Files) -> bool {
        let file = files.kept(FileKey(5)).unwrap();
        let mut poll = [PollFd::new(file, PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        let ready = !poll[0].revents().is_empty();
        ready && files.is_closed(5)
    }
}
