//! Gives the library its name, and writes the code that exports every function of NVML: from the list in the crate `nvml`,
//! less those in `overrides.txt`, comes `exports.rs`, included by `src/forward.rs`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

const OVERRIDES: &str = "overrides.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={OVERRIDES}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{}", nvml::SONAME);
    // The library's own references to its functions must reach its own, also where the real one was loaded first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Containers have older C libraries than the machines that this is built on.
    older_glibc::link();

    let text = std::fs::read_to_string(OVERRIDES)?;
    let overrides: BTreeSet<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let all: Vec<&str> = nvml::SYMBOLS.lines().collect();
    if let Some(unknown) = overrides.iter().find(|symbol| !all.contains(symbol)) {
        return Err(format!("{OVERRIDES}: {unknown} is not a function of NVML; check the spelling").into());
    }
    let mut code = String::new();
    writeln!(code, "pub(super) const COUNT: usize = {};", all.len())?;
    for (index, symbol) in all.iter().enumerate().filter(|(_, symbol)| !overrides.contains(*symbol)) {
        writeln!(code, "forwarders::forwarder!({symbol}, {index}, super::SLOTS);")?;
    }
    writeln!(code, "pub(super) static SYMBOLS: [&std::ffi::CStr; COUNT] = [")?;
    for symbol in &all {
        writeln!(code, "    c\"{symbol}\",")?;
    }
    writeln!(code, "];")?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("exports.rs"), code)?;
    Ok(())
}
