//! What the loader reads in programs and libraries: for which machine they are, which loader they want, and which versions
//! of the C library they need or have. Of 64-bit files for this machine; of others only that they are others.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Program headers looked at; real programs have about a dozen.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES: usize = 56;
/// Entries of a dynamic section, versions of a library, files that it needs: more than any real one has.
const ENTRIES_MAX: usize = 4096;
/// The longest name.
const NAME_BYTES_MAX: usize = 4096;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;

const DT_STRTAB: u64 = 5;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERNEED: u64 = 0x6fff_fffe;

/// A version of the C library.
pub(crate) type Version = (u32, u32);

/// An executable or a library.
#[derive(Debug)]
pub(crate) struct Elf {
    file: File,
    is_64_bit: bool,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Elf {
    /// Reads the head of a file; None where it is no such file.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        match head[..5] {
            [0x7f, b'E', b'L', b'F', 2] => {}
            [0x7f, b'E', b'L', b'F', 1] => return Some(Self { file, is_64_bit: false, segments: vec![] }),
            _ => return None,
        }
        let (begin, count) = (number(&head, 32, 8), number(&head, 56, 2) as usize);
        if number(&head, 54, 2) as usize != HEADER_BYTES || count == 0 || count > HEADERS_MAX {
            return None;
        }
        let mut headers = vec![0; count * HEADER_BYTES];
        file.read_exact_at(&mut headers, begin).ok()?;
        let segment = |header: &[u8]| Segment {
            kind: number(header, 0, 4),
            offset: number(header, 8, 8),
            address: number(header, 16, 8),
            bytes: number(header, 32, 8),
        };
        let segments = headers.chunks(HEADER_BYTES).map(segment).collect();
        Some(Self { file, is_64_bit: true, segments })
    }

    /// Is it for 64-bit processes?
    pub(crate) fn is_64_bit(&self) -> bool {
        self.is_64_bit
    }

    /// The loader that it names; None for one that is linked statically.
    pub(crate) fn loader(&self) -> Option<PathBuf> {
        let segment = self.segments.iter().find(|segment| segment.kind == PT_INTERP)?;
        let mut name = vec![0; usize::try_from(segment.bytes).ok()?.min(NAME_BYTES_MAX)];
        self.file.read_exact_at(&mut name, segment.offset).ok()?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned().into())
    }

    /// The newest version of the C library that it needs.
    pub(crate) fn glibc_needed(&self) -> Option<Version> {
        let table = self.dynamic(DT_VERNEED)?;
        let mut newest = None;
        let mut file = table;
        for _ in 0..ENTRIES_MAX {
            let [count, first, next] = self.numbers(file, [(2, 2), (8, 4), (12, 4)])?;
            let mut entry = file + first;
            for _ in 0..count {
                let [name, following] = self.numbers(entry, [(8, 4), (12, 4)])?;
                newest = newest.max(self.name(name).and_then(|name| version(&name)));
                entry += following;
            }
            if next == 0 {
                return newest;
            }
            file += next;
        }
        None
    }

    /// The newest version that it has, if it is the C library.
    pub(crate) fn glibc_defined(&self) -> Option<Version> {
        let mut entry = self.dynamic(DT_VERDEF)?;
        let mut newest = None;
        for _ in 0..ENTRIES_MAX {
            let [first, next] = self.numbers(entry, [(12, 4), (16, 4)])?;
            let [name] = self.numbers(entry + first, [(0, 4)])?;
            newest = newest.max(self.name(name).and_then(|name| version(&name)));
            if next == 0 {
                return newest;
            }
            entry += next;
        }
        None
    }

    /// The value of an entry of the dynamic section.
    fn dynamic(&self, tag: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        (0..ENTRIES_MAX as u64)
            .map_while(|index| self.numbers(segment.address + 16 * index, [(0, 8), (8, 8)]))
            .find_map(|[found, value]| (found == tag).then_some(value))
    }

    /// A text of the table of texts.
    fn name(&self, at: u64) -> Option<String> {
        let begin = self.offset(self.dynamic(DT_STRTAB)?.checked_add(at)?)?;
        let mut text = [0; 64];
        let bytes = self.file.read_at(&mut text, begin).ok()?;
        let end = text[..bytes].iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Numbers of so many bytes, so many bytes behind an address.
    fn numbers<const COUNT: usize>(
        &self,
        address: u64,
        places: [(usize, usize); COUNT],
    ) -> Option<[u64; COUNT]> {
        let mut bytes = [0; 24];
        // The last of a file may be shorter than this.
        let _ = self.file.read_at(&mut bytes, self.offset(address)?).ok()?;
        Some(places.map(|(at, count)| number(&bytes, at, count)))
    }

    /// Where in the file an address is.
    fn offset(&self, address: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD
                && (segment.address..segment.address.saturating_add(segment.bytes)).contains(&address)
        };
        let segment = self.segments.iter().find(holds)?;
        segment.offset.checked_add(address - segment.address)
    }
}

/// The version of the C library that a program's loader comes with.
pub(crate) fn glibc_of(loader: &Path) -> Option<Version> {
    // The loader is often a link to where both are.
    let folder = loader.canonicalize().ok()?.parent()?.to_owned();
    Elf::read(&folder.join("libc.so.6"))?.glibc_defined()
}

fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes[at..at + count].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// As in "GLIBC_2.34"; a third number counts for nothing.
fn version(name: &str) -> Option<Version> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_out_of_their_names() {
        assert_eq!(version("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(version("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(version("GLIBC_PRIVATE"), None);
        assert_eq!(version("GCC_3.0"), None);
    }

    #[test]
    fn this_program_needs_no_more_than_its_loader_has() {
        let me = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(me.is_64_bit());
        let (needed, there) = (me.glibc_needed().unwrap(), glibc_of(&me.loader().unwrap()).unwrap());
        assert!((2, 17) <= needed && needed <= there, "{needed:?} {there:?}");
    }

    #[test]
    fn what_is_no_program_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for text in ["", "#!/bin/sh\n", "\x7fELF\x02 and nothing that would make it one"] {
            std::fs::write(&file, text).unwrap();
            assert!(Elf::read(&file).is_none(), "{text:?}");
        }
        // A head that points nowhere.
        let mut head = [0xff_u8; 256];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[54..58].copy_from_slice(&[56, 0, 2, 0]);
        std::fs::write(&file, head).unwrap();
        assert!(Elf::read(&file).is_none());
    }

    #[test]
    fn files_that_were_tampered_with_end_the_search() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let whole = std::fs::read("/bin/sh").unwrap();
        for bytes in (64..whole.len()).step_by(997) {
            std::fs::write(&file, &whole[..bytes]).unwrap();
            if let Some(elf) = Elf::read(&file) {
                let _ = (elf.loader(), elf.glibc_needed(), elf.glibc_defined());
            }
        }
    }
}
