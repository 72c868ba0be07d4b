//! Reading `/etc/ld.so.cache`, the system's list of shared libraries.
//!
//! The file is a header, `count` entries and a string table. In the format of today everything is counted from the
//! header's start; on systems that once ran an older C library, an old header with its own entries lies before it.
//! The file is not trusted: every offset is checked, and what is out of bounds is an error, never a panic.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER_SIZE: usize = 16;
const OLD_COUNT_OFFSET: usize = 12;
const OLD_ENTRY_SIZE: usize = 12;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_SIZE: usize = 48;
const HEADER_ALIGNMENT: usize = 8;
const COUNT_OFFSET: usize = 20;
const ENTRY_SIZE: usize = 24;
const ENTRY_NAME_OFFSET: usize = 4;
const ENTRY_PATH_OFFSET: usize = 8;
const ENTRY_HWCAP_OFFSET: usize = 16;

/// The kind of library this process can open: ELF for the C library in use, of this machine's word size.
#[cfg(target_arch = "x86_64")]
const LIBRARY_KIND: u32 = 0x0303;
#[cfg(target_arch = "aarch64")]
const LIBRARY_KIND: u32 = 0x0a03;

/// A larger file is not a cache of libraries.
const SIZE_MAX: u64 = 64 << 20;

/// Why the cache could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is of no known format.
    #[error("not a cache of libraries: no known header at its start")]
    Magic,
    /// The file ends too early, or an offset in it is wrong.
    #[error("the cache of libraries is damaged: {what} at byte {offset} is outside of its {size} bytes")]
    Bounds {
        /// What lies outside.
        what: &'static str,
        /// Where it should be.
        offset: usize,
        /// How large the file is.
        size: usize,
    },
}

/// The paths that the cache file gives for a library name, best first.
pub fn read(cache: &Path, soname: &str) -> Result<Vec<PathBuf>, CacheError> {
    let error = |source| CacheError::Read { path: cache.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(cache).and_then(|file| file.take(SIZE_MAX).read_to_end(&mut bytes)).map_err(error)?;
    paths(&bytes, soname)
}

/// The paths that the cache's bytes give for a library name, best first.
pub fn paths(bytes: &[u8], soname: &str) -> Result<Vec<PathBuf>, CacheError> {
    let cache = current_format(bytes)?;
    let count = number(cache, COUNT_OFFSET, "the number of entries")? as usize;
    let mut found = Vec::new();
    for index in 0..count {
        // A wrong count ends here: the entry is out of bounds long before the index can overflow.
        let entry = HEADER_SIZE.saturating_add(index.saturating_mul(ENTRY_SIZE));
        let kind = number(cache, entry, "an entry")?;
        let name = number(cache, entry.saturating_add(ENTRY_NAME_OFFSET), "an entry")?;
        let path = number(cache, entry.saturating_add(ENTRY_PATH_OFFSET), "an entry")?;
        let hwcap_low = number(cache, entry.saturating_add(ENTRY_HWCAP_OFFSET), "an entry")?;
        let hwcap_high = number(cache, entry.saturating_add(ENTRY_HWCAP_OFFSET + 4), "an entry")?;
        // Entries for special hardware need knowledge that only the dynamic linker has.
        if kind != LIBRARY_KIND || hwcap_low != 0 || hwcap_high != 0 {
            continue;
        }
        if text(cache, name as usize, "a name")? == soname.as_bytes() {
            let path = text(cache, path as usize, "a path")?;
            found.push(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    Ok(found)
}

/// The part of the file that is in the format of today.
fn current_format(bytes: &[u8]) -> Result<&[u8], CacheError> {
    if bytes.starts_with(MAGIC) {
        return Ok(bytes);
    }
    if !bytes.starts_with(OLD_MAGIC) {
        return Err(CacheError::Magic);
    }
    let count = number(bytes, OLD_COUNT_OFFSET, "the number of old entries")? as usize;
    let end = count.saturating_mul(OLD_ENTRY_SIZE).saturating_add(OLD_HEADER_SIZE);
    let start = end.checked_next_multiple_of(HEADER_ALIGNMENT).unwrap_or(usize::MAX);
    let rest = slice(bytes, start, bytes.len().saturating_sub(start), "the second header")?;
    if rest.starts_with(MAGIC) { Ok(rest) } else { Err(CacheError::Magic) }
}

fn slice<'a>(
    bytes: &'a [u8],
    offset: usize,
    length: usize,
    what: &'static str,
) -> Result<&'a [u8], CacheError> {
    let end = offset.checked_add(length);
    end.and_then(|end| bytes.get(offset..end)).ok_or(CacheError::Bounds { what, offset, size: bytes.len() })
}

fn number(bytes: &[u8], offset: usize, what: &'static str) -> Result<u32, CacheError> {
    let bytes = slice(bytes, offset, 4, what)?;
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The string at this offset, up to its NUL.
fn text<'a>(bytes: &'a [u8], offset: usize, what: &'static str) -> Result<&'a [u8], CacheError> {
    let out_of_bounds = CacheError::Bounds { what, offset, size: bytes.len() };
    let Some(rest) = bytes.get(offset..) else {
        return Err(out_of_bounds);
    };
    let end = rest.iter().position(|&byte| byte == 0);
    end.map(|end| &rest[..end]).ok_or(out_of_bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry {
        kind: u32,
        name: &'static str,
        path: &'static str,
        hwcap: u64,
    }

    fn entry(name: &'static str, path: &'static str) -> Entry {
        Entry { kind: LIBRARY_KIND, name, path, hwcap: 0 }
    }

    fn cache(entries: &[Entry]) -> Vec<u8> {
        let mut strings = Vec::new();
        let strings_start = HEADER_SIZE + entries.len() * ENTRY_SIZE;
        let mut rows = Vec::new();
        for entry in entries {
            rows.extend(entry.kind.to_ne_bytes());
            for text in [entry.name, entry.path] {
                rows.extend(((strings_start + strings.len()) as u32).to_ne_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            rows.extend(0u32.to_ne_bytes());
            rows.extend(entry.hwcap.to_ne_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.extend((strings.len() as u32).to_ne_bytes());
        bytes.resize(HEADER_SIZE, 0);
        bytes.extend(rows);
        bytes.extend(strings);
        bytes
    }

    fn sample() -> Vec<u8> {
        cache(&[
            entry("libc.so.6", "/lib/libc.so.6"),
            Entry { kind: 0x0003, ..entry("libcuda.so.1", "/lib32/libcuda.so.1") },
            Entry { hwcap: 1 << 62, ..entry("libcuda.so.1", "/lib/special/libcuda.so.1") },
            entry("libcuda.so.1", "/lib/one/libcuda.so.1"),
            entry("libcuda.so.1", "/lib/two/libcuda.so.1"),
            entry("libcuda.so", "/lib/dev/libcuda.so"),
        ])
    }

    fn combined(old_entries: usize) -> Vec<u8> {
        let mut bytes = OLD_MAGIC.to_vec();
        bytes.resize(OLD_COUNT_OFFSET, 0);
        bytes.extend((old_entries as u32).to_ne_bytes());
        bytes.resize(OLD_HEADER_SIZE + old_entries * OLD_ENTRY_SIZE, 0xaa);
        bytes.resize(bytes.len().next_multiple_of(HEADER_ALIGNMENT), 0);
        bytes.extend(sample());
        bytes
    }

    fn expected() -> Vec<PathBuf> {
        vec!["/lib/one/libcuda.so.1".into(), "/lib/two/libcuda.so.1".into()]
    }

    #[test]
    fn gives_the_paths_this_process_can_open_in_order() {
        assert_eq!(paths(&sample(), "libcuda.so.1").expect("readable"), expected());
        assert!(paths(&sample(), "libnone.so").expect("readable").is_empty());
    }

    #[test]
    fn reads_the_format_of_today_behind_the_old_one() {
        for old_entries in [0, 1, 2, 7] {
            let bytes = combined(old_entries);
            assert_eq!(paths(&bytes, "libcuda.so.1").expect("readable"), expected(), "{old_entries}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_or_right_but_never_a_panic() {
        for bytes in [sample(), combined(3)] {
            for length in 0..bytes.len() {
                if let Ok(found) = paths(&bytes[..length], "libcuda.so.1") {
                    // Only what follows the last entry looked for may be missing.
                    assert_eq!(found, expected(), "cut at {length}");
                }
            }
        }
    }

    #[test]
    fn offsets_out_of_bounds_are_errors() {
        let whole = sample();
        let first_entry = HEADER_SIZE + 3 * ENTRY_SIZE;
        for offset in [COUNT_OFFSET, first_entry + ENTRY_NAME_OFFSET, first_entry + ENTRY_PATH_OFFSET] {
            let mut bytes = whole.clone();
            bytes[offset..offset + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
            let error = paths(&bytes, "libcuda.so.1").expect_err("out of bounds");
            assert!(matches!(error, CacheError::Bounds { .. }), "{error}");
        }
        let mut bytes = combined(3);
        bytes[OLD_COUNT_OFFSET..OLD_HEADER_SIZE].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(matches!(paths(&bytes, "libcuda.so.1"), Err(CacheError::Bounds { .. })));
    }

    #[test]
    fn every_flipped_byte_is_survived() {
        let whole = combined(2);
        for index in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[index] = value;
                // Right, wrong or an error: the only promise is to return.
                let _ = paths(&bytes, "libcuda.so.1");
            }
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [&b""[..], b"ld.so", b"\x7fELF garbage", &[0; 100]] {
            assert!(matches!(paths(bytes, "libcuda.so.1"), Err(CacheError::Magic)));
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/cache"), "libcuda.so.1").expect_err("no such file");
        assert!(error.to_string().contains("/nonexistent/cache"), "{error}");
    }
}
