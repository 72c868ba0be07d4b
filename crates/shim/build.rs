//! Gives the library its name, and writes the code that exports every driver function.
//!
//! From the table in the `cuda` crate, `overrides.txt` and `gated.txt` comes `exports.rs`, included by `src/forward.rs`:
//! a function for each gated symbol, a forwarder for each that is not overridden either, and the list of all exports
//! with their addresses.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use cuda::table::{self, FUNCTIONS};

const OVERRIDES: &str = "overrides.txt";
const GATED: &str = "gated.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={OVERRIDES}");
    println!("cargo:rerun-if-changed={GATED}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The library's own references to its functions must reach its own, also where a real driver was loaded first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");

    let overrides = symbols(OVERRIDES)?;
    let gated = symbols(GATED)?;
    if let Some(symbol) = overrides.intersection(&gated).next() {
        return Err(format!("{symbol} is in both {OVERRIDES} and {GATED}").into());
    }
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("exports.rs"), exports(&overrides, &gated)?)?;
    Ok(())
}

fn symbols(file: &str) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(str::trim);
    let mut symbols = BTreeSet::new();
    for symbol in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if table::index_of(symbol).is_none() {
            return Err(format!("{file}: {symbol} is not a driver function; check the spelling").into());
        }
        if !symbols.insert(symbol.to_owned()) {
            return Err(format!("{file}: {symbol} is there twice").into());
        }
    }
    Ok(symbols)
}

/// An export's index is its index in the table.
fn exports(overrides: &BTreeSet<String>, gated: &BTreeSet<String>) -> Result<String, std::fmt::Error> {
    let mut code = String::new();
    writeln!(code, "pub(super) const COUNT: usize = {};", FUNCTIONS.len())?;
    for (index, function) in FUNCTIONS.iter().enumerate() {
        if gated.contains(function.symbol) {
            writeln!(code, "crate::gated!({}, {index});", function.symbol)?;
        } else if !overrides.contains(function.symbol) {
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
        let overridden = overrides.contains(symbol) || gated.contains(symbol);
        // Gated functions have arguments; the list keeps every address under one type.
        let address = match gated.contains(symbol) {
            true => {
                format!("unsafe {{ std::mem::transmute::<crate::gate::Widest, super::Address>({symbol}) }}")
            }
            false => symbol.to_owned(),
        };
        writeln!(
            code,
            "    Export {{ symbol: c\"{symbol}\", address: {address}, overridden: {overridden} }},"
        )?;
    }
    writeln!(code, "];")?;
    Ok(code)
}
