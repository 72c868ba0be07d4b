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

/// A write fails on the direct path, and by the time it does another one has fallen back for both.
#[test]
fn a_request_goes_on_when_another_falls_back_meanwhile() {
    let (_folder, file) = file();
    file.direct.store(true, Ordering::Release);
    let mut tries = 0;
    let answer = file.request(|| {
        tries += 1;
        if tries > 1 {
            return Ok(BYTES);
        }
        file.fall_back().expect("flags can change");
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    });
    assert_eq!((answer.expect("made once more"), tries), (BYTES, 2));
    let refused = file.request(|| Err(io::Error::from_raw_os_error(libc::EINVAL)));
    assert_eq!(refused.expect_err("it did not go directly").raw_os_error(), Some(libc::EINVAL));
}

/// A device that takes bytes and cannot say whether they arrived.
fn silent() -> LocalFile {
    let device = File::options().write(true).open("/dev/null").expect("Linux has it");
    LocalFile { file: device, direct: AtomicBool::new(false), losses: Mutex::default() }
}

#[test]
fn what_is_not_written_out_is_not_written() {
    let file = silent();
    assert!(file.write_at(&[7; BYTES], 0).is_err());
    assert_eq!(*file.losses(), Losses(1));
}

/// The kernel told another thread of a loss while this one wrote: it may have been this one's.
#[test]
fn a_loss_is_everybodys_who_wrote_meanwhile() {
    let (_folder, file) = file();
    file.fall_back().expect("flags can change");
    let since = *file.losses();
    let mut buffer = Buffer::new(BYTES);
    file.write_at(buffer.bytes(), 0).expect("written");
    file.write_out(0, BYTES, since).expect("nobody was told of anything");
    file.losses().0 += 1;
    let lost = file.write_out(0, BYTES, since).expect_err("somebody was told");
    assert_eq!(lost.raw_os_error(), Some(libc::EIO));
    file.write_at(buffer.bytes(), 0).expect("it began after that");
}
