//! The built library: what it asks of the C library, and that it exports what its header declares.

use std::path::PathBuf;

/// The library under test: beside this program, or a folder above.
fn library() -> Vec<u8> {
    let program = std::env::current_exe().expect("this program has a path");
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    let path: PathBuf = built.max().expect("cargo builds the library before its tests").1;
    std::fs::read(path).unwrap()
}

#[test]
fn it_asks_for_no_function_that_an_older_c_library_lacks() {
    let named = older_glibc::versions_named(&library());
    assert!(!named.is_empty(), "this reads what the loader reads");
    assert!(named.into_iter().max() <= Some(older_glibc::NEEDED), "add what is newer to crates/older-glibc");
}

#[test]
fn it_exports_every_function_of_its_header() {
    let header = include_str!("../include/rota.h");
    let file = library();
    let code = header.lines().filter(|line| !line.starts_with([' ', '/', '#']));
    let declared: Vec<&str> = code
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("rota_"))
        .collect();
    assert_eq!(declared.len(), 9, "{declared:?}");
    for name in declared {
        let text = format!("\0{name}\0");
        assert!(file.windows(text.len()).any(|found| found == text.as_bytes()), "{name} is not exported");
    }
}
