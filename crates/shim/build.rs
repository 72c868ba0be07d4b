//! Gives the library its name, and writes the code that exports every driver function.
//!
//! From the table in the `cuda` crate and `overrides.txt` comes `exports.rs`, included by `src/forward.rs`: one
//! forwarder for each symbol that is not overridden, and the list of all exports with their addresses.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use cuda::table::{self, FUNCTIONS};

const OVERRIDES: &str = "overrides.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={OVERRIDES}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The library's own references to its functions must reach its own, also where a real driver was loaded first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");

    let list = std::fs::read_to_string(OVERRIDES)?;
    let overrides = overrides(&list)?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("exports.rs"), exports(&overrides)?)?;
    Ok(())
}

fn overrides(text: &str) -> Result<BTreeSet<&str>, Box<dyn Error>> {
    let lines = text.lines().map(str::trim);
    let mut symbols = BTreeSet::new();
    for symbol in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if table::index_of(symbol).is_none() {
            return Err(format!("{OVERRIDES}: {symbol} is not a driver function; check the spelling").into());
        }
        if !symbols.insert(symbol) {
            return Err(format!("{OVERRIDES}: {symbol} is there twice").into());
        }
    }
    Ok(symbols)
}

/// An export's index is its index in the table.
fn exports(overrides: &BTreeSet<&str>) -> Result<String, std::fmt::Error> {
    let mut code = String::new();
    writeln!(code, "pub(super) const COUNT: usize = {};", FUNCTIONS.len())?;
    for (index, function) in FUNCTIONS.iter().enumerate() {
        if !overrides.contains(function.symbol) {
            writeln!(code, "forwarder!({}, {index});", function.symbol)?;
        }
    }
    writeln!(code, "unsafe extern \"C\" {{")?;
    for symbol in overrides {
        writeln!(code, "    fn {symbol}();")?;
    }
    writeln!(code, "}}")?;
    writeln!(code, "pub(super) static EXPORTS: [Export; COUNT] = [")?;
    for function in FUNCTIONS {
        let symbol = function.symbol;
        let overridden = overrides.contains(symbol);
        writeln!(
            code,
            "    Export {{ symbol: c\"{symbol}\", address: {symbol}, overridden: {overridden} }},"
        )?;
    }
    writeln!(code, "];")?;
    Ok(code)
}
