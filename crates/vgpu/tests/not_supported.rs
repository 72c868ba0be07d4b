//! The list of what is not supported: its page in the docs says the same, and none of the project's own needs is on it.

use std::path::Path;

use vgpu::not_supported::{FILE, page, parse, symbols};

fn families() -> Vec<vgpu::not_supported::Family> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_page_is_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vgpu-not-supported.md");
    let expected = page(&families());
    if std::env::var_os("ROTA_WRITE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not what the list says: run this test with ROTA_WRITE_DOCS=1",
        path.display()
    );
}

#[test]
fn every_family_has_a_reason_and_symbols() {
    for family in families() {
        assert!(family.reason.len() > 20, "{}: a reason, please", family.name);
        assert!(!family.patterns.is_empty(), "{}: no symbols", family.name);
    }
}

#[test]
fn what_rota_calls_itself_is_supported() {
    let refused = symbols(&families()).unwrap();
    for symbol in cuda::Driver::REQUIRED.iter().chain(cuda::Driver::OPTIONAL) {
        assert!(!refused.contains(symbol), "{symbol}");
    }
}

#[test]
fn mistakes_in_the_list_are_found() {
    assert!(parse("cuInit").is_err(), "before a family");
    assert!(parse("[no reason]").is_err());
    let symbols_of = |text: &str| symbols(&parse(text).unwrap());
    assert!(symbols_of("[a: b]\ncuNoSuchFunction").is_err());
    assert!(symbols_of("[a: b]\ncuArray* cuArrayCreate").is_err(), "twice");
    assert_eq!(symbols_of("[a: b]\ncuInit").unwrap().len(), 1);
}
