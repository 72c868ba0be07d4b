//! What can be typed after `rota sim`.

use super::OutputArgs;
use clap::{Args as ArgsOf, Subcommand};
use sim::policy::Policy;
use sim::scenario::file::{Given, SEED_MAX};
use std::path::PathBuf;
use wire::quantity::Bytes;

pub(super) const EXAMPLES: &str = "\
Examples:
  rota sim list                               scenarios that come with rota
  rota sim compare seed-4x12                  rota beside others
  rota sim run seed-4x12 --timeline a.svg     one run, with a picture
  rota sim run ./mine.toml --policy rota:priority
                                              a scenario of your own
  rota sim sweep seed-4x12 --vary gap_max=30s,60s,120s
                                              one run for each value
  rota sim optimum six-fit-three              beside the least possible
  rota sim calibrate                          the model beside measurements";

pub(super) const AFTER: &str = "\
A SCENARIO is the name of one that comes with rota, or a TOML file. The files in scenarios/ show all that one can \
say.

Exit codes:
  0    simulated
  1    failed
  2    wrong usage, or a scenario with a mistake: the message names file, line
       and reason";

const RUN_EXAMPLES: &str = "\
Examples:
  rota sim run h200-4x12
  rota sim run h200-4x12 --policy unified-60s
  rota sim run bursty --seed 7 --timeline bursty.svg
  rota sim run bursty --set turn_max=20s --set gpu.capacity=24GiB -o json";

const COMPARE_EXAMPLES: &str = "\
Examples:
  rota sim compare seed-4x12
  rota sim compare lc-four-be -o json | jq '.rows[].lc_latency_ns_p99'
  rota sim compare seed-4x12 --timeline seed-4x12.svg";

const SWEEP_EXAMPLES: &str = "\
Examples:
  rota sim sweep seed-4x12 --vary gap_max=30s,60s,90s,120s
  rota sim sweep small-co-residents --vary turn_min=10ms,50ms,100ms,500ms
  rota sim sweep h200-4x12 --vary gpu.both=12GB/s,25GB/s,46GB/s -o json
  rota sim sweep small-co-residents --vary job.copies=2,4,8";

const OPTIMUM_EXAMPLES: &str = "\
Examples:
  rota sim optimum six-fit-three
  rota sim optimum six-fit-three --seed 7 --set job.weight=3 -o json
  rota sim optimum --events turns.jsonl --room 12GiB";

const OPTIMUM_AFTER: &str = "\
The least is what somebody would have moved who knew all turns beforehand, with the same turns in the same order: each \
piece of memory that is not needed for a while is kept on the device or goes out and comes back, and what is kept must fit \
beside what is needed. Where all handles have one size and all of them are rewritten it is exact; otherwise it is a bound \
that nobody can be below, so the ratio may be too high and is never too low.\n\n\
The timeline of a daemon is that of `rotad --events FILE`, on one GPU. The room is what is left of the capacity when the \
mover and all contexts have theirs. Let the time that is judged begin when all of them have allocated \
what they will and have been moved once: before that, a timeline does not tell what they have.";

const CALIBRATE_AFTER: &str = "\
Measured on one H200 with driver 580.159.04. All rows share the physics that scenarios run with by default. \
What the measured programs do on their own is theirs; one such figure was not measured but fitted to its \
rows: how long the one with small kernels computes between two synchronisations. MPS is not modelled.";

const POLICY_HELP: &str = "\
rota, or rota:fair, rota:priority, rota:deadline and rota:serial for the core's own policies; \
unified (unified-60s for another quantum), stock, serial";

#[derive(Debug, Subcommand)]
pub(crate) enum SimVerb {
    /// List the scenarios that come with rota.
    List(ListArgs),
    /// Run a scenario.
    #[command(before_long_help = RUN_EXAMPLES)]
    Run(SimArgs),
    /// Run a scenario under rota and under everything it is compared with.
    #[command(before_long_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run a scenario once for each value of a setting.
    #[command(before_long_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Put what was moved beside the least that could have been.
    #[command(before_long_help = OPTIMUM_EXAMPLES, after_long_help = OPTIMUM_AFTER)]
    Optimum(OptimumArgs),
    /// Put the model of the GPU beside the measurements.
    #[command(after_long_help = CALIBRATE_AFTER)]
    Calibrate(CalibrateArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Which scenario, and with what changes.
#[derive(Debug, ArgsOf)]
pub(crate) struct Scenario {
    /// The name of a scenario that comes with rota, or a TOML file.
    #[arg(value_name = "SCENARIO")]
    pub(crate) name: String,

    /// Where randomness begins; the scenario's own if not given.
    #[arg(long, value_name = "N", value_parser = seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,

    /// Put a value over that of the scenario.
    ///
    /// KEY is a setting of the core, as in turn_min=50ms, or a path through the file, as in gpu.capacity=24GiB. In a
    /// list of tables, such as [[job]], it stands for all of them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = given)]
    pub(crate) set: Vec<Given>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) scenario: Scenario,

    /// By which rules.
    #[arg(long, value_name = "POLICY", default_value = "rota", long_help = POLICY_HELP)]
    pub(crate) policy: Policy,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Write a picture of who ran, waited and moved.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) scenario: Scenario,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Write a picture of who ran, waited and moved under each.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) scenario: Scenario,

    /// What to vary, and the values it takes. KEY is as with --set.
    #[arg(long, value_name = "KEY=VALUE,VALUE,...", value_parser = vary)]
    pub(crate) vary: Vary,

    /// By which rules.
    #[arg(long, value_name = "POLICY", default_value = "rota", long_help = POLICY_HELP)]
    pub(crate) policy: Policy,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
#[command(group(clap::ArgGroup::new("what").args(["name", "events"]).required(true)))]
pub(crate) struct OptimumArgs {
    /// The name of a scenario that comes with rota, or a TOML file: it is run and judged.
    #[arg(value_name = "SCENARIO")]
    pub(crate) name: Option<String>,

    /// Judge the timeline of a daemon instead.
    #[arg(long, value_name = "FILE", requires = "room")]
    pub(crate) events: Option<PathBuf>,

    /// Device memory that is left for what tenants allocate, as in 12GiB.
    #[arg(long, value_name = "SIZE", requires = "events")]
    pub(crate) room: Option<Bytes>,

    /// Judge from this instant of the daemon's clock on (`t_ns`).
    #[arg(long, value_name = "NS", default_value_t = 0, requires = "events")]
    pub(crate) from_ns: u64,

    /// Judge up to this instant.
    #[arg(long, value_name = "NS", default_value_t = u64::MAX, hide_default_value = true, requires = "events")]
    pub(crate) to_ns: u64,

    /// Where randomness begins; the scenario's own if not given.
    #[arg(long, value_name = "N", value_parser = seed, allow_hyphen_values = true, requires = "name")]
    pub(crate) seed: Option<u64>,

    /// Put a value over that of the scenario, as with `rota sim run`.
    #[arg(long, value_name = "KEY=VALUE", value_parser = given, requires = "name")]
    pub(crate) set: Vec<Given>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// One key and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vary {
    pub(crate) key: String,
    pub(crate) values: Vec<String>,
}

fn seed(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seed) if seed <= SEED_MAX => Ok(seed),
        _ => Err(format!("write a whole number from 0 to {SEED_MAX}")),
    }
}

fn given(text: &str) -> Result<Given, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok(Given { key: key.into(), value: value.into() })
        }
        _ => Err("write KEY=VALUE, as in turn_min=50ms".into()),
    }
}

fn vary(text: &str) -> Result<Vary, String> {
    const VALUES_MAX: usize = 100;
    let Given { key, value } = given(text).map_err(|_| "write KEY=VALUE,VALUE, as in turn_min=50ms,100ms")?;
    let values: Vec<String> = value.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("a value is empty; write KEY=VALUE,VALUE, as in turn_min=50ms,100ms".into());
    }
    if values.len() > VALUES_MAX {
        return Err(format!("{} values are more than {VALUES_MAX}", values.len()));
    }
    Ok(Vary { key, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_told_apart() {
        assert_eq!(given("a.b=1=2"), Ok(Given { key: "a.b".into(), value: "1=2".into() }));
        assert!(given("a=").is_err() && given("=1").is_err() && given("a").is_err());
        assert_eq!(vary("a=1, 2"), Ok(Vary { key: "a".into(), values: vec!["1".into(), "2".into()] }));
        assert!(vary("a=1,,2").is_err() && vary("a").is_err());
    }

    #[test]
    fn a_seed_is_a_number_that_a_file_could_have() {
        assert_eq!((seed("0"), seed("4294967295")), (Ok(0), Ok(SEED_MAX)));
        for wrong in ["-1", "4294967296", "abc", ""] {
            assert_eq!(seed(wrong), Err("write a whole number from 0 to 4294967295".into()));
        }
    }
}
