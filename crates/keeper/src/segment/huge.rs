//! Huge pages that the system has set aside and nobody has taken.

use std::path::Path;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const PAGE_BYTES: u64 = 2 << 20;

/// How many bytes of them there are, none where there is no such thing.
pub fn free_huge_bytes() -> u64 {
    read(Path::new(FOLDER)).unwrap_or(0)
}

fn read(folder: &Path) -> Option<u64> {
    let number =
        |name| -> Option<u64> { std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok() };
    // What is promised to a mapping is free as well, until that is used.
    let pages = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
    Some(pages.saturating_mul(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_not_free() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        std::fs::write(folder.path().join("free_hugepages"), "7\n").expect("a small file");
        std::fs::write(folder.path().join("resv_hugepages"), "3\n").expect("a small file");
        assert_eq!(read(folder.path()), Some(8 << 20));
        std::fs::write(folder.path().join("resv_hugepages"), "9\n").expect("a small file");
        assert_eq!(read(folder.path()), Some(0));
    }
}
