//! Reading a scenario from TOML.
//!
//! Everything that is wrong is said with its line, the reason and what to write instead: unknown keys, quantities
//! without units, and sizes that no GPU of the scenario could serve. What comes out of here can be simulated.

mod gpu;
mod job;
mod settings;

use super::document::{self, Place, Problem};
use super::fields::{Fields, all, quantity, text};
use super::nearest::nearest;
use super::quantity::SPAN;
use super::{Faults, Gpu, Job, Scenario, Work};
use sched::{Bytes, Ratio, Settings, Span};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use thiserror::Error;

/// The longest simulation, and the default: what never ends is cut off here.
const LIMIT_DEFAULT: Span = Span::from_secs(100_000);
/// The quanta of the fault-driven baseline, the first as the row `unified`.
const QUANTA_DEFAULT: [Span; 3] = [Span::from_secs(30), Span::from_secs(60), Span::from_secs(120)];
/// Quanta in one scenario.
const QUANTA_MAX: usize = 8;
/// What stands at the top of a file.
const KEYS: [&str; 9] =
    ["about", "seed", "limit", "arena", "unified_quanta", "gpu", "settings", "faults", "job"];
/// The largest seed.
pub const SEED_MAX: u64 = u32::MAX as u64;
/// GPUs in one scenario.
const GPUS_MAX: usize = 64;
/// Tenants in one scenario.
const TENANTS_MAX: u64 = 100_000;

/// Why there is no scenario.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {path}: {cause}\nhint: {hint}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why not.
        cause: std::io::Error,
        /// What to do about it.
        hint: &'static str,
    },
    /// It can, but it is wrong.
    #[error("{}", told(origin, problem))]
    Wrong {
        /// The file, or the name of a built-in scenario.
        origin: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// A value to be put over that of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// A setting of the core, or a path through the file as in `gpu.physics.switch`.
    pub key: String,
    /// As in the file, without quotes.
    pub value: String,
}

fn told(origin: &str, problem: &Problem) -> String {
    let Problem { place, reason, hint } = problem;
    let place = match place {
        Place::Line(line) => format!("{origin}:{line}"),
        Place::Given(given) => format!("{origin} with {given}"),
    };
    match hint {
        Some(hint) => format!("{place}: {reason}\nhint: {hint}"),
        None => format!("{place}: {reason}"),
    }
}

/// Reads a file.
pub fn read(path: &Path, given: &[Given]) -> Result<Scenario, FileError> {
    let origin = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|cause| {
        let hint = match cause.kind() {
            ErrorKind::NotFound => {
                "see those that come with rota with `rota sim list`, or name a file that is there"
            }
            ErrorKind::IsADirectory => "name a TOML file in it",
            _ => "see with `ls -l` who may read it",
        };
        FileError::Unreadable { path: origin.clone(), cause, hint }
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = document::line_of(error.as_bytes(), good);
        let problem = Problem::new(&Place::Line(line), "this is no text in UTF-8")
            .hint("save it as UTF-8, or name a TOML file");
        FileError::Wrong { origin: origin.clone(), problem }
    })?;
    let name = path.file_stem().map_or_else(|| origin.clone(), |stem| stem.to_string_lossy().into_owned());
    parse(&name, &origin, &text, given)
}

/// Reads a text. Its `origin` is what errors name.
pub fn parse(name: &str, origin: &str, text: &str, given: &[Given]) -> Result<Scenario, FileError> {
    scenario(name, text, given).map_err(|problem| FileError::Wrong { origin: origin.into(), problem })
}

fn scenario(name: &str, text: &str, given: &[Given]) -> Result<Scenario, Problem> {
    let mut root = document::parse(text)?;
    for Given { key, value } in given {
        // Settings of the core are what is mostly varied: their names are enough.
        let path = if settings::is_name(key) { format!("settings.{key}") } else { key.clone() };
        let first = path.split('.').next().unwrap_or_default();
        if !KEYS.contains(&first) {
            let problem =
                Problem::new(&Place::Given(format!("{key}={value}")), format!("unknown key `{first}`"));
            return Err(match nearest(first, settings::NAMES.into_iter().chain(KEYS)) {
                Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
                None => {
                    problem.hint("name a setting of the core, or a path through the file as in gpu.capacity")
                }
            });
        }
        document::put(&mut root, &path, value)?;
    }
    let mut from = Fields::of("the scenario", &root)?;
    let about =
        self::text("about", from.need("about", "\"Two tenants that do not fit together\"")?)?.to_owned();
    let mut seed = 1;
    from.number("seed", &mut seed, SEED_MAX)?;
    let limit = limit(&mut from)?;
    let gpus = gpus(&mut from)?;
    let settings = match from.take("settings") {
        Some(node) => settings::read(node)?,
        None => Settings::default(),
    };
    let jobs = jobs(&mut from, &gpus, &settings, limit)?;
    let mut arena = jobs.iter().map(memory_in_all).sum::<Bytes>();
    from.bytes("arena", &mut arena)?;
    let faults = match from.take("faults") {
        Some(node) => faults(node)?,
        None => Faults::default(),
    };
    let unified_quanta = quanta(&mut from)?;
    from.finish()?;
    Ok(Scenario {
        name: name.into(),
        about,
        seed,
        limit,
        gpus,
        arena,
        settings,
        jobs,
        faults,
        unified_quanta,
    })
}

fn limit(from: &mut Fields<'_>) -> Result<Span, Problem> {
    let mut limit = LIMIT_DEFAULT;
    from.span("limit", &mut limit)?;
    let wrong = |reason: &str| Problem::new(&from.place_of("limit"), format!("`limit` is {limit}, {reason}"));
    if limit == Span::ZERO {
        return Err(wrong("so nothing would be simulated").hint("leave it out for 100000s"));
    }
    if limit > LIMIT_DEFAULT {
        return Err(wrong("more than 100000 s").hint("write at most \"100000s\""));
    }
    Ok(limit)
}

fn gpus(from: &mut Fields<'_>) -> Result<Vec<Gpu>, Problem> {
    let node = from.need("gpu", "{ capacity = \"16GiB\" }")?;
    let mut gpus = Vec::new();
    for one in all(node) {
        let (gpu, count) = gpu::read(one, GPUS_MAX)?;
        gpus.extend(std::iter::repeat_n(gpu, count));
    }
    if gpus.is_empty() || gpus.len() > GPUS_MAX {
        return Err(Problem::new(&node.place, format!("the scenario has {} GPUs", gpus.len()))
            .hint(format!("write 1 to {GPUS_MAX}")));
    }
    Ok(gpus)
}

fn jobs(from: &mut Fields<'_>, gpus: &[Gpu], settings: &Settings, limit: Span) -> Result<Vec<Job>, Problem> {
    let bounded = from.take("limit").is_some();
    let node = from
        .need("job", "{ name = \"a\", memory = \"12GiB\", work = { kind = \"steady\", total = \"60s\" } }")?;
    let mut jobs: Vec<Job> = Vec::new();
    let mut names = BTreeSet::new();
    let mut tenants = 0;
    for one in all(node) {
        let place = &one.place;
        let (job, copies) = job::read(one, gpus, settings, limit)?;
        if endless(&job.work) && job.dies.is_none() && !bounded {
            return Err(Problem::new(
                place,
                format!("`{}` never ends and the scenario has no `limit`", job.name),
            )
            .hint("add limit = \"60s\" at the top, or a `count` to its work"));
        }
        tenants += u64::from(copies) * u64::from(job.tenants);
        if tenants > TENANTS_MAX {
            return Err(Problem::new(place, format!("there are {tenants} tenants, more than {TENANTS_MAX}"))
                .hint("lower `copies` or `tenants`"));
        }
        for copy in 1..=copies {
            let name = if copies == 1 { job.name.clone() } else { format!("{}-{copy}", job.name) };
            if !names.insert(name.clone()) {
                return Err(Problem::new(place, format!("two jobs have the name `{name}`"))
                    .hint("give each a name of its own, or use `copies`"));
            }
            jobs.push(Job { name, ..job.clone() });
        }
    }
    if jobs.is_empty() {
        return Err(Problem::new(&node.place, "the scenario has no jobs").hint("add a [[job]]"));
    }
    Ok(jobs)
}

/// Without an end of its own.
fn endless(work: &Work) -> bool {
    match work {
        Work::Steady { .. } => false,
        Work::Steps { count, .. } | Work::Bursts { count, .. } | Work::Requests { count, .. } => *count == 0,
    }
}

fn memory_in_all(job: &Job) -> Bytes {
    let each = job.memory.growth.map_or(job.memory.bytes, |(_, _, up_to)| up_to);
    Bytes(each.0.saturating_mul(u64::from(job.tenants)))
}

fn faults(node: &document::Node) -> Result<Faults, Problem> {
    let mut from = Fields::of("[faults]", node)?;
    let mut faults = Faults { late_by: Span::from_millis(50), ..Faults::default() };
    from.part("late", &mut faults.late)?;
    from.span("late_by", &mut faults.late_by)?;
    from.part("failed", &mut faults.failed)?;
    from.part("lost", &mut faults.lost)?;
    let sum = faults.late.0 + faults.failed.0 + faults.lost.0;
    if sum > Ratio::ONE.0 {
        return Err(Problem::new(from.place(), format!("late, failed and lost together are {}", Ratio(sum)))
            .hint("together they are at most \"100%\""));
    }
    from.finish()?;
    Ok(faults)
}

fn quanta(from: &mut Fields<'_>) -> Result<Vec<Span>, Problem> {
    let Some(node) = from.take("unified_quanta") else { return Ok(QUANTA_DEFAULT.to_vec()) };
    let mut quanta = Vec::new();
    for one in all(node) {
        let quantum = Span(quantity("unified_quanta", one, &SPAN)?);
        if quantum == Span::ZERO || quanta.contains(&quantum) {
            return Err(Problem::new(&one.place, format!("a quantum of {quantum}, zero or there already"))
                .hint("write each quantum once, as in [\"30s\", \"60s\"]"));
        }
        quanta.push(quantum);
    }
    if quanta.is_empty() || quanta.len() > QUANTA_MAX {
        return Err(Problem::new(&node.place, format!("`unified_quanta` has {} of them", quanta.len()))
            .hint(format!("write 1 to {QUANTA_MAX}, or leave it out")));
    }
    Ok(quanta)
}

/// A list of GPU numbers.
fn numbers(key: &str, node: &document::Node, gpus: usize) -> Result<Vec<u16>, Problem> {
    all(node)
        .iter()
        .map(|one| match one.value {
            document::Value::Integer(number) if (0..gpus as i64).contains(&number) => Ok(number as u16),
            document::Value::Integer(number) => {
                Err(Problem::new(&one.place, format!("there is no GPU {number}"))
                    .hint(format!("`{key}` counts from 0 to {}", gpus - 1)))
            }
            _ => Err(Problem::new(&one.place, format!("`{key}` is not a list of numbers"))
                .hint(format!("write for example {key} = [0]"))),
        })
        .collect()
}

#[cfg(test)]
mod tests;
