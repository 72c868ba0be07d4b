//! The built library loads where the C library is older than the one it was built with.

use std::path::PathBuf;

/// The library under test: beside this program, or a folder above.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota_shim.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().expect("cargo builds the library before its tests").1
}

#[test]
fn it_asks_for_no_function_that_an_older_c_library_lacks() {
    let file = std::fs::read(library()).unwrap();
    let named = older_glibc::versions_named(&file);
    // It does ask for some: this reads what the loader reads.
    assert!(named.contains(&(2, 14)), "{named:?}");
    let newest = named.into_iter().max();
    assert_eq!(newest, Some(older_glibc::NEEDED), "add what is newer to crates/older-glibc");
}
