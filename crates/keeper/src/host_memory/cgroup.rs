//! The memory limits of the control groups that this process is in: a container's, a systemd slice's. Beyond such a
//! limit the kernel ends processes, however much memory the host has.
//!
//! Both versions are read where they are usually mounted, below `/sys/fs/cgroup`; a limit above what a container can
//! see cannot be found. What is missing or makes no sense limits nothing.

use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

/// What a process may still use, by the tightest of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// The smallest limit.
    pub(super) limit_bytes: u64,
    /// The least that is left below a limit. That may be another group's.
    pub(super) left_bytes: u64,
}

/// How one version names things.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    mounts: &'static [&'static str],
    limits: &'static [&'static str],
    usage: &'static str,
    /// In memory.stat: file contents that nobody has used for a while. They count as used, but go when room is needed.
    reclaimable: &'static str,
}

static V1: Version = Version {
    mounts: &["sys/fs/cgroup/memory"],
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

static V2: Version = Version {
    // Beside version 1 it is mounted one level deeper.
    mounts: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    // Above `high` the kernel ends nobody, but makes everything crawl, and pinned memory cannot be taken away.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: "inactive_file",
};

/// The limits on this process, below this root folder. None if there are none.
pub(super) fn read(root: &Path) -> Option<Limit> {
    let memberships = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut tightest: Option<Limit> = None;
    for (version, group) in groups(&memberships) {
        for mount in version.mounts {
            for folder in group.ancestors() {
                let Some(limit) = limit_of(version, &root.join(mount).join(folder)) else { continue };
                tightest = Some(tightest.map_or(limit, |other| Limit {
                    limit_bytes: limit.limit_bytes.min(other.limit_bytes),
                    left_bytes: limit.left_bytes.min(other.left_bytes),
                }));
            }
        }
    }
    tightest
}

/// The groups that may limit memory, from the text of `/proc/self/cgroup`; paths are relative to the mount.
fn groups(memberships: &str) -> Vec<(&'static Version, PathBuf)> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match (number, controllers) {
            ("0", "") => &V2,
            (_, controllers) if controllers.split(',').any(|name| name == "memory") => &V1,
            _ => return None,
        };
        Some((version, within_mount(path)))
    };
    memberships.lines().filter_map(group).collect()
}

/// A group outside of what is mounted here shows as a path upwards. Then only the mount's own limit can be told.
fn within_mount(path: &str) -> PathBuf {
    let path = Path::new(path.trim_start_matches('/'));
    let is_within = path.components().all(|component| matches!(component, Component::Normal(_)));
    if is_within { path.to_owned() } else { PathBuf::new() }
}

fn limit_of(version: &Version, folder: &Path) -> Option<Limit> {
    let number = |name: &&str| bytes(&read_to_string(folder.join(name)).ok()?);
    let limit_bytes = version.limits.iter().filter_map(number).min()?;
    let used_bytes = number(&version.usage).unwrap_or(0);
    let stat = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let kept_bytes = used_bytes.saturating_sub(stat_field(&stat, version.reclaimable).unwrap_or(0));
    Some(Limit { limit_bytes, left_bytes: limit_bytes.saturating_sub(kept_bytes) })
}

/// A number alone in its file; `max` is none.
fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn stat_field(stat: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    stat.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GIB: u64 = 1 << 30;
    /// What version 1 says where nothing is limited.
    const V1_UNLIMITED: &str = "9223372036854771712\n";

    /// A root folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder above it")).expect("a folder");
            fs::write(path, text).expect("a small file");
        }
        root
    }

    fn read_from(files: &[(&str, &str)]) -> Option<Limit> {
        read(root(files).path())
    }

    fn gib(limit: u64, left: u64) -> Option<Limit> {
        Some(Limit { limit_bytes: limit * GIB, left_bytes: left * GIB })
    }

    fn text(gib: u64) -> String {
        format!("{}\n", gib * GIB)
    }

    #[test]
    fn groups_are_told_from_their_lines() {
        let group = |path: &str| PathBuf::from(path);
        assert_eq!(groups("0::/system.slice/rotad.service\n"), [(&V2, group("system.slice/rotad.service"))]);
        assert_eq!(groups("0::/\n"), [(&V2, group(""))]);
        assert_eq!(groups("0::/odd:name\n"), [(&V2, group("odd:name"))]);
        assert_eq!(
            groups("9:name=systemd:/a\n5:cpu,memory:/b\n3:memory_other:/c\n0::/d\n"),
            [(&V1, group("b")), (&V2, group("d"))]
        );
        assert_eq!(groups("0::/../../elsewhere\n"), [(&V2, group(""))]);
        assert_eq!(groups("\n0\n0:\n:::\nno colons here\n7:cpu:/x\n"), []);
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(bytes("4096\n"), Some(4096));
        for none in ["max\n", "", "-1\n", "4096 kB\n", "99999999999999999999999\n"] {
            assert_eq!(bytes(none), None, "{none:?}");
        }
        let stat = "inactive_file_not 1\nfile 2\ninactive_file 3\n";
        assert_eq!(stat_field(stat, "inactive_file"), Some(3));
        assert_eq!(stat_field("inactive_file x\n", "inactive_file"), None);
    }

    #[test]
    fn of_nested_groups_the_tightest_counts() {
        let mut files = vec![
            ("proc/self/cgroup", "0::/slice/service\n"),
            ("sys/fs/cgroup/slice/memory.max", "17179869184\n"),
            ("sys/fs/cgroup/slice/memory.current", "15032385536\n"),
            ("sys/fs/cgroup/slice/service/memory.max", "8589934592\n"),
            ("sys/fs/cgroup/slice/service/memory.current", "1073741824\n"),
            ("sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(read_from(&files), gib(8, 2), "the slice has 2 left, the service 7");
        files[3].1 = "max\n";
        assert_eq!(read_from(&files), gib(16, 2));
        files[1].1 = "max\n";
        assert_eq!(read_from(&files), None);
        files.push(("sys/fs/cgroup/slice/service/memory.high", "3221225472\n"));
        assert_eq!(read_from(&files), gib(3, 2), "only slowed down, but that is bad enough");
    }

    #[test]
    fn a_container_sees_its_limit_at_the_root() {
        let (limit, used) = (text(4), text(1));
        for membership in ["0::/\n", "0::/docker/0123\n", "0::/../0123\n"] {
            let files = [
                ("proc/self/cgroup", membership),
                ("sys/fs/cgroup/memory.max", &limit),
                ("sys/fs/cgroup/memory.current", &used),
            ];
            assert_eq!(read_from(&files), gib(4, 3), "{membership}");
        }
    }

    #[test]
    fn files_that_nobody_uses_are_no_obstacle() {
        let (limit, used) = (text(4), text(4));
        let stat = format!("anon 1\ninactive_file {}\nactive_file 1\n", 3 * GIB);
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", limit.as_str()),
            ("sys/fs/cgroup/memory.current", &used),
            ("sys/fs/cgroup/memory.stat", &stat),
        ];
        assert_eq!(read_from(&files), gib(4, 3));
    }

    #[test]
    fn version_1_limits_too() {
        let (limit, used) = (text(6), text(2));
        let stat = format!("inactive_file 7\ntotal_inactive_file {GIB}\n");
        let mut files = vec![
            ("proc/self/cgroup", "4:memory:/jobs/one\n3:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", limit.as_str()),
            ("sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", &used),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", "1\n"),
        ];
        assert_eq!(read_from(&files), gib(6, 4));
        files.push(("sys/fs/cgroup/memory/jobs/one/memory.stat", &stat));
        assert_eq!(read_from(&files), gib(6, 5));
    }

    #[test]
    fn of_both_versions_the_tightest_counts() {
        let (wide, narrow) = (text(9), text(5));
        let files = [
            ("proc/self/cgroup", "4:memory:/one\n0::/two\n"),
            ("sys/fs/cgroup/memory/one/memory.limit_in_bytes", wide.as_str()),
            ("sys/fs/cgroup/unified/two/memory.max", &narrow),
        ];
        assert_eq!(read_from(&files), gib(5, 5));
    }

    #[test]
    fn what_is_missing_or_garbage_limits_nothing() {
        assert_eq!(read_from(&[]), None);
        assert_eq!(read_from(&[("proc/self/cgroup", "0::/a\n")]), None);
        assert_eq!(
            read_from(&[("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "lots\n")]),
            None
        );
        let limit = text(2);
        let mut files = vec![
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", limit.as_str()),
            ("sys/fs/cgroup/a/memory.current", "some\n"),
        ];
        assert_eq!(read_from(&files), gib(2, 2), "a limit holds although its use is not known");
        files[2].1 = "99999999999999999\n";
        assert_eq!(read_from(&files), gib(2, 0), "more is used than allowed");
    }
}
