//! `rota config show`: the daemon's settings, as they are in force.

use crate::args::{Output, ShowArgs};
use crate::columns::{Side, columns};
use crate::describe::as_json;
use crate::quantity::printable;
use crate::{daemon, print};
use anyhow::bail;
use std::path::Path;
use wire::{Answer, Command, SCHEMA_VERSION};

/// Prints them.
pub(crate) fn show(args: &ShowArgs, socket: &Path) -> anyhow::Result<()> {
    let settings = match daemon::command(socket, Command::Settings) {
        Ok(Answer::Settings(settings)) => settings,
        Ok(other) => return Err(daemon::strange(socket, &other)),
        Err(error) if error.is::<daemon::NobodyThere>() => {
            bail!("{error:#}, or see what one would have with `rotad check-config`");
        }
        Err(error) => return Err(error),
    };
    if args.output.form() == Output::Json {
        return print(&as_json(
            &serde_json::json!({ "schema_version": SCHEMA_VERSION, "settings": settings }),
        )?);
    }
    let rows: Vec<Vec<String>> = settings
        .iter()
        .map(|setting| {
            let mut row = vec![setting.key.clone(), printable(&setting.value)];
            row.extend(args.origin.then(|| printable(&setting.origin)));
            row
        })
        .collect();
    let sides = [Side::Left; 3];
    print(&columns(&sides[..if args.origin { 3 } else { 2 }], &rows))
}
