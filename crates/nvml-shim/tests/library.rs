//! The built library, as a loader sees it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The library under test: beside this program, or a folder above.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota_nvml.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().expect("cargo builds the library before its tests").1
}

#[test]
fn it_has_every_function_and_the_name_that_programs_ask_for() {
    let path = CString::new(library().as_os_str().as_bytes()).unwrap();
    // SAFETY: the library does nothing when it is loaded.
    let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!loaded.is_null(), "it cannot be loaded");
    // A library of that name is there now: this one.
    // SAFETY: nothing is loaded by this.
    let named = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    assert_eq!(named, loaded);
    for symbol in nvml::SYMBOLS.lines() {
        let name = CString::new(symbol).unwrap();
        // SAFETY: a handle of the loader's, and a name.
        assert!(!unsafe { libc::dlsym(loaded, name.as_ptr()) }.is_null(), "{symbol}");
    }
}

#[test]
fn it_asks_for_no_function_that_an_older_c_library_lacks() {
    let named = older_glibc::versions_named(&std::fs::read(library()).unwrap());
    let newest = named.into_iter().max().expect("it asks for some");
    assert!(newest <= older_glibc::NEEDED, "{newest:?}: add what is newer to crates/older-glibc");
}
