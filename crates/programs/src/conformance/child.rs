//! A process that runs some checks of one family and tells its parent, line by line, how far it is.
//!
//! Lines on standard output: `begin INDEX`, `end INDEX WORDS`.

use std::io::Write;

use anyhow::Context;

use super::{Check, Setting, family};
use crate::bench::Bench;

/// Runs the checks `first .. last` of a family.
pub fn run(name: &str, first: usize, last: usize) -> anyhow::Result<()> {
    let family = family(name).with_context(|| format!("there is no family named {name}"))?;
    let checks = family.checks.get(first..last).context("there are not so many checks in the family")?;
    let bare = checks.iter().any(|check| check.setting == Setting::Bare);
    let bench = if bare { Bench::bare()? } else { Bench::with_context()? };
    for (index, check) in (first..).zip(checks) {
        tell(&format!("begin {index}"));
        (check.run)(&bench);
        if check.setting == Setting::Shared {
            leave_in_order(&bench, check);
        }
        tell(&format!("end {index} {}", bench.take_record()));
    }
    Ok(())
}

/// What the next check relies on: the primary context is current and works.
fn leave_in_order(bench: &Bench, check: &Check) {
    bench.expect("afterwards-set", bench.cu.cuCtxSetCurrent(bench.context));
    bench.expect("afterwards", bench.cu.cuCtxSynchronize());
    debug_assert!(check.setting == Setting::Shared);
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent is gone or has given up on this process: nobody is left to tell.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// The second process of a check about sharing: takes memory over from this open file.
pub fn import(file: i32) -> anyhow::Result<()> {
    super::checks::in_child(file)
}
