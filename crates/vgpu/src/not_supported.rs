//! The list of functions that answer `CUDA_ERROR_NOT_SUPPORTED` by decision: how it is written, and as a page of the docs.
//!
//! `not_supported.txt` has families: a line `[name: reason]`, then one symbol a line; a `*` at the end of a symbol
//! stands for anything. The build makes the functions from it, and a test keeps the docs the same.

use std::collections::BTreeSet;
use std::fmt::Write;

use cuda::table::FUNCTIONS;

/// The list, from the crate's folder.
pub const FILE: &str = "not_supported.txt";

/// Functions that are left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// What they are about.
    pub name: String,
    /// Why they are left out.
    pub reason: String,
    /// Symbols, or beginnings of symbols with a `*`.
    pub patterns: Vec<String>,
}

/// Reads the list.
pub fn parse(text: &str) -> Result<Vec<Family>, String> {
    let mut families: Vec<Family> = Vec::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix('[') {
            let head = head.strip_suffix(']').ok_or_else(|| format!("{line}: no closing bracket"))?;
            let (name, reason) = head.split_once(": ").ok_or_else(|| format!("{line}: no reason"))?;
            families.push(Family { name: name.into(), reason: reason.into(), patterns: Vec::new() });
        } else {
            let family = families.last_mut().ok_or_else(|| format!("{line}: before the first family"))?;
            family.patterns.extend(line.split_whitespace().map(str::to_owned));
        }
    }
    Ok(families)
}

/// The symbols that a pattern stands for.
pub fn matching(pattern: &str) -> impl Iterator<Item = &'static str> {
    let (start, open) = match pattern.strip_suffix('*') {
        Some(start) => (start, true),
        None => (pattern, false),
    };
    let symbols = FUNCTIONS.iter().map(|function| function.symbol);
    symbols.filter(move |symbol| if open { symbol.starts_with(start) } else { *symbol == start })
}

/// All symbols of the list; an error for a pattern that stands for none, or a symbol that is there twice.
pub fn symbols(families: &[Family]) -> Result<BTreeSet<&'static str>, String> {
    let mut symbols = BTreeSet::new();
    for pattern in families.iter().flat_map(|family| &family.patterns) {
        let mut some = false;
        for symbol in matching(pattern) {
            some = true;
            if !symbols.insert(symbol) {
                return Err(format!("{FILE}: {symbol} is there twice"));
            }
        }
        if !some {
            return Err(format!("{FILE}: no driver function is called {pattern}"));
        }
    }
    Ok(symbols)
}

/// The page of the docs.
pub fn page(families: &[Family]) -> String {
    let mut page = String::from(
        "# What the virtual GPU does not support\n\n\
         Every function of the driver is exported. Those below answer `CUDA_ERROR_NOT_SUPPORTED`, by decision; all others \
         work. Written from `crates/vgpu/not_supported.txt`; a test keeps the two the same.\n\n\
         | functions | why not |\n|---|---|\n",
    );
    for family in families {
        let names: BTreeSet<&str> = family
            .patterns
            .iter()
            .flat_map(|pattern| matching(pattern))
            .map(|symbol| symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds"))
            .collect();
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| **{}**: {} | {} |", family.name, names.join(", "), family.reason);
    }
    page
}
