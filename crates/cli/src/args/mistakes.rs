//! What is wrong with what was typed, or with what a variable says in its place.

use super::command;
use crate::run::EXIT_ROTA;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::process::ExitCode;

/// Says it, or what was asked for as with `--help`. The exit code.
pub(crate) fn complain(error: clap::Error) -> ExitCode {
    let variable = variable_behind(&error);
    // Nobody typed that: what `rota run` ends with then is never taken for what a program says.
    let code = if variable.is_some() { EXIT_ROTA } else { error.exit_code() as u8 };
    // Nobody may be there to read it.
    let _ = hinted(error, variable.as_deref()).print();
    ExitCode::from(code)
}

/// The command that was meant where the letters are right and their order is not.
fn unscrambled(word: &str) -> Option<String> {
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let commands = command();
    let meant =
        commands.get_subcommands().map(clap::Command::get_name).find(|name| letters(name) == letters(word));
    meant.map(str::to_owned)
}

/// Is it `rota run`? `sim` has a `run` of its own.
fn is_run() -> bool {
    std::env::args_os().find(|word| word == "run" || word == "sim").is_some_and(|verb| verb == "run")
}

/// The variable that a value without sense is from, if `rota run` was not told another by a flag.
fn variable_behind(error: &clap::Error) -> Option<String> {
    let commands = command();
    let mut arguments = commands.find_subcommand("run").filter(|_| is_run())?.get_arguments();
    let name = |argument: &clap::Arg| Some(argument.get_env()?.to_str()?.to_owned());
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {}
        // Whose is not said. What was typed goes before.
        ErrorKind::InvalidUtf8 if std::env::args_os().all(|word| word.to_str().is_some()) => {
            let is_odd = |name: &String| std::env::var_os(name).is_some_and(|value| value.to_str().is_none());
            return arguments.filter_map(name).find(is_odd);
        }
        _ => return None,
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let end = argument.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
    let flag = &argument[..end.unwrap_or(argument.len())];
    let is_flag =
        |word: &str| word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    let mut typed = std::env::args_os().take_while(|word| word != "--");
    if typed.any(|word| word.to_str().is_some_and(is_flag)) {
        return None;
    }
    name(arguments.find(|argument| argument.get_long() == flag.strip_prefix("--"))?)
}

/// With what may have been meant; whoever forgot the dashes before a program is told of them.
fn hinted(mut error: clap::Error, variable: Option<&str>) -> clap::Error {
    if let Some(variable) = variable {
        let tip = format!("this is what {variable} says in the environment; a flag goes before it");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if let (ErrorKind::UnknownArgument, true, Some(ContextValue::String(word))) =
        (error.kind(), is_run(), error.get(ContextKind::InvalidArg))
        && !word.starts_with('-')
    {
        let tip = format!("a program stands after two dashes: rota run -- {}", word.escape_debug());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if let (ErrorKind::InvalidSubcommand, None, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::SuggestedSubcommand), error.get(ContextKind::InvalidSubcommand))
        && let Some(meant) = unscrambled(word)
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_its_letters_in_another_order_is_known() {
        assert_eq!(unscrambled("rnu").as_deref(), Some("run"));
        assert_eq!(unscrambled("top"), None);
        let error = command().try_get_matches_from(["rota", "rnu"]).unwrap_err();
        assert!(hinted(error, None).to_string().contains("'run'"));
    }
}
