//! Misuses of a GPU, each in a process of its own, and whether the driver catches it.
//!
//! Caught means: some call says so, at once or when the work is waited for, or the process dies. A virtual GPU is stricter
//! than a real one: what a real driver forgives it writes to the file `misuse.log` in its directory (`ROTA_VGPU`), and that
//! counts as caught too.

mod deeds;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::bench::Bench;
use deeds::DEEDS;

/// Runs every misuse in a child process and prints a line for each. Returns how many were not caught.
pub fn run() -> anyhow::Result<usize> {
    let own = std::env::current_exe().context("the path of this program is not known")?;
    let mut missed = 0;
    for (index, deed) in DEEDS.iter().enumerate() {
        let before = log_lines();
        let output = Command::new(&own)
            .args(["one", &index.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("a process for a misuse does not start")?;
        let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let verdict = match (output.status.signal(), words.split(' ').all(|word| word == "ok")) {
            (Some(signal), _) => format!("caught, died of signal {signal}"),
            (None, false) => "caught".to_owned(),
            (None, true) if log_lines() > before => "caught, written down".to_owned(),
            (None, true) => {
                missed += 1;
                "not caught".to_owned()
            }
        };
        println!("{}: {words}: {verdict}", deed.name);
    }
    println!("{} misuses, {} caught, {missed} not", DEEDS.len(), DEEDS.len() - missed);
    Ok(missed)
}

/// Commits one misuse and prints what the calls said.
pub fn one(index: usize) -> anyhow::Result<()> {
    let deed = DEEDS.get(index).context("there are not so many misuses")?;
    let bench = Bench::with_context()?;
    (deed.commit)(&bench);
    println!("{}", bench.take_record());
    Ok(())
}

/// How much a virtual GPU has written down; nothing on a real one.
fn log_lines() -> usize {
    let directory = std::env::var_os("ROTA_VGPU").map(PathBuf::from);
    let text = directory.and_then(|directory| std::fs::read_to_string(directory.join("misuse.log")).ok());
    text.map_or(0, |text| text.lines().count())
}

#[cfg(test)]
mod tests {
    use super::DEEDS;

    #[test]
    fn there_are_a_dozen_of_different_names() {
        let mut names: Vec<&str> = DEEDS.iter().map(|deed| deed.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12);
    }
}
