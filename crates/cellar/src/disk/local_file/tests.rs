use super::*;
use crate::GRANULE_BYTES;
use crate::buffer::{Buffer, UNIT_BYTES};
use rustix::fs::fstat;
use std::fs::read_dir;

const BYTES: usize = 4 * UNIT_BYTES;

fn file() -> (tempfile::TempDir, LocalFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = LocalFile::create(folder.path(), Accept::Anything).expect("a file");
    (folder, file)
}

fn round_trip(file: &LocalFile) {
    let mut buffer = Buffer::new(BYTES);
    buffer.bytes().fill(7);
    assert_eq!(file.write_at(buffer.bytes(), GRANULE_BYTES).expect("written"), BYTES);
    buffer.bytes().fill(0);
    assert_eq!(file.read_at(buffer.bytes(), GRANULE_BYTES).expect("read"), BYTES);
    assert!(buffer.bytes().iter().all(|&byte| byte == 7));
}

#[test]
fn it_has_no_name_and_is_nobody_elses() {
    let (folder, file) = file();
    round_trip(&file);
    assert_eq!(read_dir(folder.path()).expect("a folder").count(), 0);
    let about = fstat(&file.file).expect("a file");
    assert_eq!((about.st_nlink, about.st_mode & 0o777), (0, 0o600));
}

#[test]
fn without_nameless_files_the_name_goes_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = create_and_unlink(folder.path(), OFlags::RDWR | OFlags::CLOEXEC).expect("a file");
    assert_eq!(read_dir(folder.path()).expect("a folder").count(), 0);
    let about = fstat(&file).expect("a file");
    assert_eq!((about.st_nlink, about.st_mode & 0o777), (0, 0o600));
    round_trip(&LocalFile::of_file(file, folder.path(), Accept::Anything).expect("usable"));
}

#[test]
fn without_direct_requests_bytes_are_the_same() {
    let (_folder, file) = file();
    file.fall_back().expect("flags can change");
    round_trip(&file);
    assert!(!file.is_direct());
}

/// What a file system refuses directly, here because of the address, goes through the page cache.
#[test]
fn what_cannot_go_directly_goes_all_the_same() {
    let (_folder, file) = file();
    let mut buffer = Buffer::new(2 * UNIT_BYTES);
    buffer.bytes().fill(7);
    assert_eq!(file.write_at(&buffer.bytes()[1..][..UNIT_BYTES], 0).expect("written"), UNIT_BYTES);
    let mut back = vec![0; UNIT_BYTES];
    assert_eq!(file.read_at(&mut back, 0).expect("read"), UNIT_BYTES);
    assert_eq!(back, [7; UNIT_BYTES]);
}

#[test]
fn room_is_taken_and_given_back() {
    let (_folder, file) = file();
    let part = Extent { offset: 0, bytes: 16 * GRANULE_BYTES };
    let blocks = || fstat(&file.file).expect("a file").st_blocks as u64 * 512;
    file.allocate(part).expect("a megabyte");
    let taken = blocks();
    file.release(part).expect("punched");
    // A file system that promises nothing takes nothing.
    assert!(taken == 0 || (taken >= part.bytes && blocks() < taken), "{taken}, {}", blocks());
    assert!(file.available_bytes().expect("known") > 0);
}

#[test]
fn memory_is_refused() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let refused = LocalFile::create(shm, Accept::LocalDisk);
    let message = refused.expect_err("it is memory").to_string();
    assert!(message.contains("/dev/shm is on tmpfs") && message.contains("needs a disk"), "{message}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let refused = LocalFile::create(Path::new("/nowhere/at/all"), Accept::Anything);
    let message = refused.expect_err("there is none").to_string();
    assert!(message.contains("/nowhere/at/all"), "{message}");
}
