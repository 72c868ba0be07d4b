//! Every name that frameworks were seen to ask for is found.

use std::ffi::{CString, c_int, c_void};

use cuda::types::CUdriverProcAddressQueryResult as Status;
use cuda::{CUresult, Driver, Library};

use crate::bench::library;

/// What frameworks ask for, in the data of the `cuda` crate's tests.
const ENTRY_POINTS: &str = include_str!("../../../cuda/tests/data/entry-points.txt");

fn driver() -> Driver {
    Driver::load(Library::open(library()).unwrap()).unwrap()
}

#[test]
fn every_name_that_frameworks_ask_for_is_found() {
    let driver = driver();
    let resolver = driver.cuGetProcAddress_v2.unwrap();
    let mut asked = 0;
    for line in ENTRY_POINTS.lines().filter(|line| !line.starts_with('#')) {
        let [_, how, name, version, flags] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let symbol = CString::new(name).unwrap();
        if how != "gpa2" {
            assert!(driver.library.symbol(&symbol).is_some(), "{line}");
            continue;
        }
        asked += 1;
        let (mut found, mut status): (*mut c_void, _) = (std::ptr::null_mut(), Status::SUCCESS);
        let version: c_int = version.parse().unwrap();
        // SAFETY: the places live, and the name is a text.
        let code =
            unsafe { resolver(symbol.as_ptr(), &mut found, version, flags.parse().unwrap(), &mut status) };
        // What is in no driver of the table's version, the real one does not find either.
        let known = cuda::table::lookup(name, version as u32, flags.parse().unwrap()).is_some();
        assert_eq!(code, CUresult::SUCCESS, "{line}");
        assert_eq!((found.is_null(), status == Status::SUCCESS), (!known, known), "{line}");
    }
    assert!(asked > 100, "only {asked} names");
}

#[test]
fn every_symbol_of_the_table_is_exported() {
    let driver = driver();
    for function in cuda::table::FUNCTIONS {
        assert!(
            driver.library.symbol(&CString::new(function.symbol).unwrap()).is_some(),
            "{}",
            function.symbol
        );
    }
}
