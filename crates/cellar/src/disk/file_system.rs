//! What kind of file system a folder is on, by the number that `statfs` has for it.
//!
//! Memory would defeat the purpose: blocks leave the arena because memory is full. Another machine's disk makes everybody
//! wait for a network, and a server that does not answer holds threads for ever. File systems that are programs (FUSE)
//! may be either, and wait for a program that may itself wait for memory.

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A disk of this machine, or nothing that is known to be otherwise.
    Disk,
    /// Memory, under this name.
    Memory(&'static str),
    /// Another machine's, or a program's, under this name.
    Remote(&'static str),
}

/// What kind it is, by the kernel's number.
pub fn kind(magic: u64) -> Kind {
    match magic & 0xFFFF_FFFF {
        0x0102_1994 => Kind::Memory("tmpfs"),
        0x8584_58F6 => Kind::Memory("ramfs"),
        0x9584_58F6 => Kind::Memory("hugetlbfs"),
        0x6969 => Kind::Remote("NFS"),
        0x517B => Kind::Remote("SMB"),
        0xFE53_4D42 => Kind::Remote("SMB2"),
        0xFF53_4D42 => Kind::Remote("CIFS"),
        0x0102_1997 => Kind::Remote("9P"),
        0x00C3_6400 => Kind::Remote("Ceph"),
        0x5346_414F | 0x6B41_4653 => Kind::Remote("AFS"),
        0x7375_7245 => Kind::Remote("Coda"),
        0x0BD0_0BD0 => Kind::Remote("Lustre"),
        0x1983_0326 => Kind::Remote("BeeGFS"),
        0x4750_4653 => Kind::Remote("GPFS"),
        0x0116_1970 => Kind::Remote("GFS2"),
        0x7461_636F => Kind::Remote("OCFS2"),
        0x6573_5546 => Kind::Remote("FUSE"),
        _ => Kind::Disk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_from_memory_and_networks() {
        for (magic, name) in
            [(0xEF53, "ext4"), (0x5846_5342, "XFS"), (0x9123_683E, "btrfs"), (0x2FC1_2FC1, "ZFS")]
        {
            assert_eq!(kind(magic), Kind::Disk, "{name}");
        }
        assert_eq!(kind(0x0102_1994), Kind::Memory("tmpfs"));
        assert_eq!(kind(0x6969), Kind::Remote("NFS"));
        // Numbers with the highest bit set may come sign-extended.
        assert_eq!(kind(0xFFFF_FFFF_8584_58F6), Kind::Memory("ramfs"));
        assert_eq!(kind(0xFFFF_FFFF_FF53_4D42), Kind::Remote("CIFS"));
    }
}
