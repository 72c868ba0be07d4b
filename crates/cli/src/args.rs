//! What can be typed. No behaviour lives here beyond checking a value's form.

mod help;
mod mistakes;
mod sim;
mod terms;

pub(crate) use mistakes::complain;
pub(crate) use sim::{
    CalibrateArgs, CompareArgs, ListArgs, OptimumArgs, Scenario, SimArgs, SimVerb, SweepArgs,
};
pub(crate) use terms::TermsArgs;

use clap::{Args as ArgsOf, CommandFactory as _, Parser, Subcommand, ValueEnum};
use help::{
    CDI_EXAMPLES, COMPLETIONS_EXAMPLES, CONFIG_EXAMPLES, DEMO_EXAMPLES, DESCRIBE_EXAMPLES, DOCTOR_EXAMPLES,
    EXAMPLES, MAN_EXAMPLES, PAUSE_EXAMPLES, PS_AFTER, PS_EXAMPLES, RUN_AFTER, RUN_EXAMPLES, SET_EXAMPLES,
    STATUS_EXAMPLES,
};
use std::ffi::OsString;
use std::path::PathBuf;
use wire::GpuChoice;
use wire::quantity::Span;

/// The most bytes a job's name may have.
pub(crate) const JOB_NAME_BYTES_MAX: usize = 128;

/// Share GPUs between programs that don't know about each other.
#[derive(Debug, Parser)]
#[command(name = "rota", version, before_long_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The daemon's socket.
    ///
    /// Without it: /run/rota/rotad.sock for root, else rota/rotad.sock in XDG_RUNTIME_DIR, else /tmp/rota-UID/rotad.sock;
    /// and root's, where none of your own is there.
    #[arg(long, global = true, value_name = "PATH", env = "ROTA_SOCKET", help_heading = "Daemon")]
    pub(crate) socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program that shares GPUs.
    #[command(before_long_help = RUN_EXAMPLES, after_long_help = RUN_AFTER)]
    Run(RunArgs),
    /// Show the GPUs and who shares them.
    #[command(before_long_help = PS_EXAMPLES, after_long_help = PS_AFTER)]
    Ps(PsArgs),
    /// Show all about a job, a process or a GPU.
    #[command(before_long_help = DESCRIBE_EXAMPLES)]
    Describe(DescribeArgs),
    /// Show how the daemon is, and what it shares.
    #[command(before_long_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Change the terms of a job while it runs.
    #[command(before_long_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Keep a job off its GPUs until it is resumed.
    #[command(before_long_help = PAUSE_EXAMPLES)]
    Pause(PauseArgs),
    /// Let a paused job run again.
    #[command(before_long_help = PAUSE_EXAMPLES)]
    Resume(JobArgs),
    /// Show the daemon's settings.
    #[command(subcommand, before_long_help = CONFIG_EXAMPLES)]
    Config(ConfigVerb),
    /// Check whether this machine is fit for it, and say what to do.
    #[command(before_long_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Bring rota into containers.
    #[command(subcommand, before_long_help = CDI_EXAMPLES)]
    Cdi(CdiVerb),
    /// Print what makes a shell complete rota's words.
    #[command(before_long_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual, or write one page for each command.
    #[command(before_long_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Watch programs that do not fit together take turns on a virtual GPU; needs no real one.
    #[command(before_long_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Simulate: run scenarios without a GPU, under rota and under what it is compared with.
    #[command(subcommand, before_long_help = sim::EXAMPLES, after_long_help = sim::AFTER)]
    Sim(SimVerb),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct RunArgs {
    /// The job's name.
    ///
    /// Without it: the program's name and its process number. Inside a job, `rota run` stays in that job.
    #[arg(long, value_name = "JOB", env = "ROTA_JOB", value_parser = job_name)]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) terms: TermsArgs,

    /// The GPUs for it, as 2, all or device=0,1.
    ///
    /// Without it: one, chosen by where there is room. Indices are as in `rota ps`, and the beginning of a UUID is enough, as
    /// in device=GPU-5bc3. CUDA_VISIBLE_DEVICES is set to them.
    #[arg(long, value_name = "GPUS", env = "ROTA_GPUS", value_parser = gpus)]
    pub(crate) gpus: Option<GpuChoice>,

    /// Run its processes at the same time or not at all.
    ///
    /// On all their GPUs: for jobs whose kernels wait for each other, as with NCCL. A job with a process on several GPUs is
    /// always treated so.
    #[arg(long)]
    pub(crate) gang: bool,

    /// How long it may wait for a place, as 10m.
    ///
    /// The exit code is 125 then. Without it, it waits for as long as it takes.
    #[arg(long, value_name = "TIME", env = "ROTA_TIMEOUT")]
    pub(crate) timeout: Option<Span>,

    /// Run it on a virtual GPU, which only a daemon started with `rotad --vgpu DIR` has.
    ///
    /// It is software, small and slow, and knows only the kernels of rota's own programs. Without this flag nothing runs
    /// there.
    #[arg(long)]
    pub(crate) vgpu: bool,

    /// Print no notices.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// How to print something.
#[derive(Clone, Copy, Debug, ArgsOf)]
pub(crate) struct OutputArgs {
    /// How to print it.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    output: Output,

    /// The same as -o json.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl OutputArgs {
    /// The form that was asked for.
    pub(crate) fn form(self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}

#[derive(Debug, ArgsOf)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct DescribeArgs {
    /// A job's name, a process, a GPU's UUID or the beginning of it, or gpu0.
    #[arg(value_name = "JOB|PID|GPU")]
    pub(crate) what: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct SetArgs {
    /// The job's name, or a process of it.
    #[arg(value_name = "JOB")]
    pub(crate) job: String,

    #[command(flatten)]
    pub(crate) terms: TermsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct JobArgs {
    /// The job's name, or a process of it.
    #[arg(value_name = "JOB")]
    pub(crate) job: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct PauseArgs {
    /// Have it give up its contexts too, by the driver's own checkpoint: nothing of it is left on the GPU. It takes seconds to
    /// come back. Needs a driver of version 570 or later, and programs that have waited for all of their work and have no memory of
    /// other processes. Meanwhile a program that is to end waits until it is resumed; SIGKILL ends it at once.
    #[arg(long)]
    pub(crate) deep: bool,

    /// Do not wait until it is known whether it has given them up: `rota describe` says so later. Else `rota` ends with 1 where
    /// something of it stays on the GPU; it is paused all the same.
    #[arg(long, requires = "deep")]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the settings that are in force.
    #[command(before_long_help = CONFIG_EXAMPLES)]
    Show(ShowArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ShowArgs {
    /// Say where each comes from: a flag, the environment, a line of a file, or the default.
    #[arg(long)]
    pub(crate) origin: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CdiVerb {
    /// Write the file that tells container engines what a container needs.
    #[command(before_long_help = CDI_EXAMPLES)]
    Generate(GenerateArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct GenerateArgs {
    /// Where to write it; without it, to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ManArgs {
    /// The folder to write pages to, made if it is missing; without it, the first page is printed.
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct DemoArgs {
    /// How many programs.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=6))]
    pub(crate) programs: u32,

    /// How much work each has, in seconds of a GPU of its own.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How to print data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs: stable keys, bytes and nanoseconds as integers.
    Json,
}

/// The whole definition. `set` changes what is typed and nothing else, so the environment is none of its business.
pub(crate) fn command() -> clap::Command {
    let without = |argument: clap::Arg| argument.env(clap::builder::Resettable::Reset);
    let of_set = |verb: clap::Command| if verb.get_name() == "set" { verb.mut_args(without) } else { verb };
    Args::command().mut_subcommands(of_set).mut_subcommands(without_daemon)
}

/// What asks no daemon says nothing of its socket; where one is named all the same, that means nothing.
fn without_daemon(verb: clap::Command) -> clap::Command {
    let unused = clap::Arg::new("socket").long("socket").value_name("PATH").global(true).hide(true);
    let unused = unused.value_parser(clap::value_parser!(PathBuf));
    match verb.get_name() {
        "demo" | "sim" | "completions" | "man" => verb.arg(unused),
        _ => verb,
    }
}

/// A name that fits on a line of `rota ps`.
fn job_name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("a job's name cannot be empty".into());
    }
    if name.len() > JOB_NAME_BYTES_MAX {
        return Err(format!("a job's name has at most {JOB_NAME_BYTES_MAX} bytes, this one {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("a job's name cannot contain control characters".into());
    }
    Ok(name.into())
}

/// As docker has them.
fn gpus(text: &str) -> Result<GpuChoice, String> {
    if text == "all" {
        return Ok(GpuChoice::All);
    }
    if let Some(names) = text.strip_prefix("device=") {
        let names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
        return match names.iter().any(String::is_empty) {
            true => Err(format!("`{text}` names a GPU by nothing; write it as device=0,1 or device=GPU-…")),
            false => Ok(GpuChoice::Named(names)),
        };
    }
    match text.parse() {
        Ok(0) => Err("a program on no GPU has no use for rota: ask for 1 or more".to_owned()),
        Ok(count) => Ok(GpuChoice::Count(count)),
        Err(_) => Err(format!(
            "`{text}` is not what can be asked for; write it as 2, all, device=0,1 or device=GPU-…"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    /// All texts around the flags, with whose they are.
    fn long_texts(command: &clap::Command) -> Vec<(String, String)> {
        let texts = [command.get_before_long_help(), command.get_after_long_help()];
        let own = texts.into_iter().flatten().map(|text| (command.get_name().into(), text.to_string()));
        own.chain(command.get_subcommands().flat_map(long_texts)).collect()
    }

    #[test]
    fn long_texts_are_not_broken_twice_on_a_terminal_of_80_columns() {
        for (verb, text) in long_texts(&command()) {
            for paragraph in text.split("\n\n") {
                let (set_in, at_margin): (Vec<&str>, Vec<&str>) =
                    paragraph.lines().partition(|line| line.starts_with(' '));
                assert!(at_margin.len() <= 1, "{verb}: broken by hand:\n{paragraph}");
                for line in set_in {
                    assert!(line.chars().count() <= 80, "{verb}: too wide:\n{line}");
                }
            }
        }
    }

    #[test]
    fn what_asks_no_daemon_says_nothing_of_its_socket() {
        let mut all = command();
        all.build();
        let help = |all: &clap::Command, path: &[&str]| {
            let verb =
                path.iter().fold(all.clone(), |verb, name| verb.find_subcommand(name).unwrap().clone());
            verb.clone().render_long_help().to_string()
        };
        for path in [&["demo"][..], &["sim", "run"], &["completions"], &["man"]] {
            assert!(!help(&all, path).contains("--socket"), "{path:?}");
        }
        assert!(help(&all, &["ps"]).contains("--socket"));
        assert!(command().try_get_matches_from(["rota", "--socket", "/s", "sim", "list"]).is_ok());
    }

    #[test]
    fn commands_and_terms_and_their_variables_are_documented() {
        let page = include_str!("../../../docs/commands.md");
        let named = |word: &str| {
            page.match_indices(word).any(|(at, _)| {
                // Not the beginning of a longer word.
                !page[at + word.len()..]
                    .starts_with(|next: char| next.is_alphanumeric() || "-_".contains(next))
            })
        };
        let commands = command();
        for verb in commands.get_subcommands() {
            assert!(named(&format!("`rota {}", verb.get_name())), "rota {} is not there", verb.get_name());
        }
        for argument in commands.find_subcommand("run").unwrap().get_arguments() {
            let flag = argument.get_long().map(|flag| format!("--{flag}"));
            let variable = argument.get_env().map(|variable| variable.to_str().unwrap().to_owned());
            for word in flag.into_iter().chain(variable) {
                assert!(named(&word), "{word} is not there");
            }
        }
    }

    #[test]
    fn the_environment_changes_no_job() {
        let help = |verb: &str| command().find_subcommand_mut(verb).unwrap().render_long_help().to_string();
        assert!(help("run").contains("[env: ROTA_MEMORY="));
        assert!(!help("set").contains("ROTA_"));
    }

    #[test]
    fn all_after_the_dashes_is_the_programs() {
        let args =
            Args::parse_from(["rota", "run", "-q", "--", "git", "-q", "--name", "x", "--", "--socket", "y"]);
        let Verb::Run(run) = args.verb else { panic!("not run") };
        assert!(run.quiet);
        assert_eq!(run.command, ["git", "-q", "--name", "x", "--", "--socket", "y"]);
    }

    #[test]
    fn the_socket_may_stand_before_or_after_the_verb() {
        for words in [["rota", "--socket", "/s", "ps"], ["rota", "ps", "--socket", "/s"]] {
            assert_eq!(Args::parse_from(words).socket, Some("/s".into()));
        }
    }

    #[test]
    fn gpus_are_asked_for_as_docker_does() {
        let named = |names: &[&str]| Ok(GpuChoice::Named(names.iter().map(|name| (*name).into()).collect()));
        assert_eq!(gpus("2"), Ok(GpuChoice::Count(2)));
        assert_eq!(gpus("all"), Ok(GpuChoice::All));
        assert_eq!(gpus("device=0,1"), named(&["0", "1"]));
        assert_eq!(gpus("device=GPU-1a2b"), named(&["GPU-1a2b"]));
        for wrong in ["0", "-1", "two", "device=", "device=0,,1", "", "70000"] {
            assert!(gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_would_spoil_a_line_are_refused() {
        assert_eq!(job_name("nightly 3"), Ok("nightly 3".into()));
        assert!(job_name("").is_err());
        assert!(job_name("a\nb").is_err());
        assert!(job_name(&"x".repeat(JOB_NAME_BYTES_MAX)).is_ok());
        assert!(job_name(&"x".repeat(JOB_NAME_BYTES_MAX + 1)).is_err());
    }
}
