//! `rotad man`: made from the one definition of what can be typed, as the pages of `rota` are.

use crate::arguments::Arguments;
use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;
use std::io::Write as _;
use std::path::Path;

/// Where daemons are in the manual.
const SECTION: &str = "8";

/// Prints the first page, or writes all of them to a folder.
pub(crate) fn man(folder: Option<&Path>) -> anyhow::Result<()> {
    let mut all = Arguments::command().disable_help_subcommand(true);
    all.build();
    let page = |command: clap::Command| Man::new(command).section(SECTION);
    let Some(folder) = folder else {
        let mut text = Vec::new();
        page(all).render(&mut text).context("cannot write the page")?;
        return std::io::stdout().write_all(&text).context("cannot write to stdout");
    };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        for command in all.get_subcommands().filter(|command| !command.is_hide_set()) {
            page(command.clone()).generate_to(folder)?;
        }
        page(all.clone()).generate_to(folder).map(drop)
    };
    write().with_context(|| format!("cannot write pages to {}", folder.display()))
}
