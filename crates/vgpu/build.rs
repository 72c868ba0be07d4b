//! Gives the library its name, and writes the code that exports every driver function.
//!
//! From the table in the `cuda` crate and `not_supported.txt` comes `exports.rs`, included by `src/exports.rs`: a function
//! that says "not supported" for each symbol of the list, and the list of all exports with their addresses. A symbol
//! that is neither on the list nor written in this crate does not link.

#[path = "src/not_supported.rs"]
#[allow(dead_code, unreachable_pub)] // The library uses other parts of it.
mod not_supported;

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use cuda::table::FUNCTIONS;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/not_supported.rs");
    println!("cargo:rerun-if-changed={}", not_supported::FILE);
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The library's own references to its functions must reach its own, also where another driver was loaded first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");

    let families = not_supported::parse(&std::fs::read_to_string(not_supported::FILE)?)?;
    let refused = not_supported::symbols(&families)?;
    let mut code = String::new();
    for symbol in &refused {
        writeln!(code, "refuse!({symbol});")?;
    }
    writeln!(code, "unsafe extern \"C\" {{")?;
    for function in FUNCTIONS.iter().filter(|function| !refused.contains(function.symbol)) {
        writeln!(code, "    fn {}();", function.symbol)?;
    }
    writeln!(code, "}}")?;
    writeln!(code, "static ADDRESSES: [Address; {}] = [", FUNCTIONS.len())?;
    for function in FUNCTIONS {
        writeln!(code, "    Address({} as *const c_void),", function.symbol)?;
    }
    writeln!(code, "];")?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("exports.rs"), code)?;
    Ok(())
}
