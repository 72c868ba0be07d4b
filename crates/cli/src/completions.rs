//! `rota completions` and `rota man`: made from the one definition of what can be typed.

use crate::args::{CompletionsArgs, ManArgs, command};
use crate::print;
use anyhow::Context as _;

/// Prints what a shell needs to complete rota's words.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "rota", &mut text);
    print(&String::from_utf8(text).context("completions that are no text")?)
}

/// Prints the manual's first page, or writes all of them to a folder.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    match &args.folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command(), folder))
            .with_context(|| format!("cannot write pages to {}", folder.display())),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command()).render(&mut page).context("cannot write the page")?;
            print(&String::from_utf8(page).context("a page that is no text")?)
        }
    }
}
