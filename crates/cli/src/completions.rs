//! `rota completions`: made from the one definition of what can be typed.

use crate::args::{CompletionsArgs, command};
use crate::print;
use anyhow::Context as _;

/// Prints what a shell needs to complete rota's words.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "rota", &mut text);
    print(&String::from_utf8(text).context("completions that are no text")?)
}
