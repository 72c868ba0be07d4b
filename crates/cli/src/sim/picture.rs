//! `--timeline`: which runs go into the picture, what is said above each, and where it is written.

use anyhow::Context as _;
use sim::policy::Run;
use sim::report::timeline::{Panel, svg};
use sim::scenario::Scenario;
use std::io::Write as _;
use std::path::Path;

/// Writes the picture and says so on stderr.
pub(crate) fn write(file: &Path, scenario: &Scenario, runs: &[Run]) -> anyhow::Result<()> {
    let picture = picture(scenario, runs);
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    std::fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))?;
    let _ = writeln!(std::io::stderr(), "rota: the timeline is in {}", file.display());
    Ok(())
}

fn picture(scenario: &Scenario, runs: &[Run]) -> String {
    // Rota first. Of the quanta of unified memory the first is enough: the others are in the table.
    let mut shown: Vec<&Run> =
        runs.iter().filter(|run| !run.row.policy.starts_with("unified-") || runs.len() == 1).collect();
    shown.reverse();
    // What ends decides the scale, so that what does not end hides nothing.
    let ended =
        shown.iter().filter(|run| run.row.finished && ["rota", "serial"].contains(&run.row.policy.as_str()));
    let until = match shown.as_slice() {
        [one] => one.record.makespan,
        all => ended
            .map(|run| run.record.makespan)
            .max()
            .or(all.iter().map(|run| run.record.makespan).min())
            .unwrap_or_default(),
    };
    let panels: Vec<Panel<'_>> =
        shown.iter().map(|run| Panel { title: run.row.headline(), record: &run.record }).collect();
    svg(&scenario.name, &scenario.about, &panels, until)
}
