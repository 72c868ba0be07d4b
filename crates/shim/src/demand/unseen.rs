//! Work that no driver function shows: of other engines, and of libraries that speak to the driver by ways of their own.

use std::fs;

use channels::{Engine, Group};

/// Libraries whose work is not seen: video, optical flow, ray tracing, graphics.
const LIBRARIES: [&str; 6] = [
    "libnvcuvid.so",
    "libnvidia-encode.so",
    "libnvidia-opticalflow.so",
    "libnvoptix.so",
    "libnvidia-glcore.so",
    "libnvidia-eglcore.so",
];

/// Whether a program with these channel groups may have such work.
pub(crate) fn is_likely(groups: &[Group]) -> bool {
    // Not asked of the dynamic linker, whose lock a thread may hold that waits for this one.
    groups.iter().any(|group| is_special(group.engine))
        || fs::read_to_string("/proc/self/maps").is_ok_and(|maps| names_library(&maps))
}

fn is_special(engine: Engine) -> bool {
    matches!(engine, Engine::Other(_))
}

fn names_library(maps: &str) -> bool {
    LIBRARIES.iter().any(|library| maps.contains(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_among_what_is_mapped() {
        let line = |path: &str| format!("7f0000000000-7f0000001000 r-xp 00000000 00:1f 42  {path}\n");
        let usual = line("/usr/lib/libcuda.so.1") + &line("/usr/lib/libcudnn.so.9");
        assert!(!names_library(&usual));
        assert!(names_library(&(usual + &line("/usr/lib/libnvcuvid.so.580.1"))));
    }

    #[test]
    fn this_process_decodes_no_video() {
        assert!(!is_likely(&[]));
    }
}
