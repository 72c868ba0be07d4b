//! `rota man`: made from the one definition of what can be typed. The longer texts of `--help` are sections of their own, with
//! the examples first.

use crate::args::{ManArgs, command};
use crate::print;
use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::path::Path;

/// Prints the manual's first page, or writes all of them to a folder.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut all = command().disable_help_subcommand(true);
    all.build();
    match &args.folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| write_all(&all, folder))
            .with_context(|| format!("cannot write pages to {}", folder.display())),
        None => print(&page(&all).context("cannot write the page")?),
    }
}

fn write_all(command: &Command, folder: &Path) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_all(verb, folder)?;
    }
    let name = Man::new(command.clone()).get_filename();
    std::fs::write(folder.join(name), page(command)?)
}

fn page(command: &Command) -> std::io::Result<String> {
    let mut page = Vec::new();
    let bare = command.clone().after_help(None::<&str>).after_long_help(None::<&str>);
    Man::new(bare).render(&mut page)?;
    let mut page = String::from_utf8(page).map_err(std::io::Error::other)?;
    for text in [command.get_before_long_help(), command.get_after_long_help()].into_iter().flatten() {
        page += &sections(&text.to_string());
    }
    Ok(page)
}

/// Paragraphs as sections: a line at the margin that ends with a colon is the title of what follows.
fn sections(text: &str) -> String {
    let mut page = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (title, body) = match paragraph.split_once('\n') {
            Some((title, body)) if title.ends_with(':') && !title.starts_with(' ') => {
                (title.trim_end_matches(':').to_uppercase(), body)
            }
            _ => ("NOTES".into(), paragraph),
        };
        // What is set in from the margin keeps its lines.
        let (begin, end) = if body.starts_with(' ') { (".nf\n", ".fi\n") } else { ("", "") };
        let _ = write!(page, ".SH \"{}\"\n{begin}", escaped(&title));
        for line in body.lines() {
            let _ = writeln!(page, "{}", escaped(line));
        }
        page += end;
    }
    page
}

/// A line that means nothing but itself.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_sections_that_mean_nothing_but_themselves() {
        let text =
            "Examples:\n  rota run -- x\n.hidden\n\nThe program replaces rota.\n\nExit codes:\n  2  a\\b";
        let expected = "\
.SH \"EXAMPLES\"\n.nf\n  rota run \\-\\- x\n\\&.hidden\n.fi\n\
.SH \"NOTES\"\nThe program replaces rota.\n\
.SH \"EXIT CODES\"\n.nf\n  2  a\\eb\n.fi\n";
        assert_eq!(sections(text), expected);
    }
}
