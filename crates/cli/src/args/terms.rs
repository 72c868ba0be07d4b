//! The terms of a job, as they can be typed: for `run` beside the environment, for `set` alone.

use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser as _};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as ArgsOf};
use wire::quantity::{Memory, Share, Span};
use wire::{Change, Class, Oversize, Priority};

const HEADING: &str = "Terms of the job";

#[derive(Clone, Debug, ArgsOf)]
pub(crate) struct TermsArgs {
    /// The most GPU memory it may have, as 8GiB or 50%.
    ///
    /// On each GPU, wherever it lies just now; contexts count too. 100% is no limit.
    #[arg(long, value_name = "SIZE", env = "ROTA_MEMORY", help_heading = HEADING)]
    pub(crate) memory: Option<Memory>,

    /// Let it be larger than its GPU, by this size.
    ///
    /// What the GPU cannot have lies in host memory. It is mapped at the same addresses, and used at the speed of the bus.
    /// Without a size: as much as the daemon gives. `none` takes it back, for memory that is not there yet.
    #[arg(
        long,
        value_name = "SIZE",
        env = "ROTA_OVERSIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        help_heading = HEADING
    )]
    pub(crate) oversize: Option<Oversize>,

    /// Its share beside your other jobs.
    ///
    /// 3 gets three times as much of the time as 1, which is the usual.
    #[arg(long, value_name = "N", env = "ROTA_WEIGHT", help_heading = HEADING)]
    pub(crate) weight: Option<u32>,

    /// The most of the GPU's time it may have, as 30%.
    ///
    /// Also while nobody else wants it. 100% is no limit.
    #[arg(long, value_name = "SHARE", env = "ROTA_CORES", value_parser = cores, help_heading = HEADING)]
    pub(crate) cores: Option<Share>,

    /// How much it matters.
    ///
    /// Counts where the daemon's policy is `priority`: a higher one whose memory is on the GPU has it at once, and whoever
    /// waits rises by a level in each `ageing`. At the door it counts always.
    #[arg(long, value_name = "LEVEL", env = "ROTA_PRIORITY", value_parser = priorities(), help_heading = HEADING)]
    pub(crate) priority: Option<Priority>,

    /// Best-effort, the usual, or latency-critical.
    ///
    /// A process has one class as a whole, its job's: what is to have another belongs into a process of another job.
    #[arg(long, env = "ROTA_CLASS", value_parser = classes(), help_heading = HEADING)]
    pub(crate) class: Option<Class>,

    /// How soon a request of an lc job is to be served, as 10ms.
    #[arg(long, value_name = "TIME", env = "ROTA_SLO", help_heading = HEADING)]
    pub(crate) slo: Option<Span>,

    /// Keep its memory on the GPU, whoever's turn it is.
    ///
    /// Nobody else is promised that memory. What would leave another program no room for its turns is out of memory, or waits
    /// with --wait. What is away already comes back with its next turn.
    #[arg(
        long,
        env = "ROTA_RESERVE",
        value_parser = FalseyValueParser::new(),
        help_heading = HEADING
    )]
    pub(crate) reserve: bool,

    /// Let its memory make room for others; the usual.
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub(crate) no_reserve: bool,

    /// Wait where memory is short.
    #[arg(
        long,
        env = "ROTA_WAIT",
        value_parser = FalseyValueParser::new(),
        help_heading = HEADING
    )]
    pub(crate) wait: bool,

    /// Be out of memory where it is short; the usual.
    #[arg(long, help_heading = HEADING)]
    pub(crate) no_wait: bool,
}

impl TermsArgs {
    /// What was typed, and what only the environment says.
    pub(crate) fn changes(&self, matches: &ArgMatches) -> (Change, Change) {
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let pick = |flags: bool| {
            let from = |id: &str| typed(id) == flags;
            Change {
                weight: self.weight.filter(|_| from("weight")),
                class: self.class.filter(|_| from("class")),
                priority: self.priority.filter(|_| from("priority")),
                memory: self.memory.filter(|_| from("memory")),
                cores_millionths: self.cores.filter(|_| from("cores")).map(Share::millionths),
                slo_ns: self.slo.filter(|_| from("slo")).map(Span::nanos),
                wait: match (self.no_wait, self.wait) {
                    (true, _) => flags.then_some(false),
                    (false, true) => from("wait").then_some(true),
                    (false, false) => None,
                },
                gang: None,
                reserve: match (self.no_reserve, self.reserve) {
                    (true, _) => flags.then_some(false),
                    (false, true) => from("reserve").then_some(true),
                    (false, false) => None,
                },
                oversize_bytes: self.oversize.filter(|_| from("oversize")).map(|Oversize(bytes)| bytes),
            }
        };
        (pick(true), pick(false))
    }
}

fn cores(text: &str) -> Result<Share, String> {
    match text.parse::<Share>() {
        Ok(share) if share > Share::ALL => Err(format!("`{text}` is more than all of it, which is 100%")),
        parsed => parsed.map_err(|error| error.to_string().replace("5%", "30%")),
    }
}

const PRIORITIES: [(Priority, &str, &str); 5] = [
    (Priority::Realtime, "realtime", "before all others"),
    (Priority::High, "high", "before most"),
    (Priority::Normal, "normal", "as most"),
    (Priority::Low, "low", "after most"),
    (Priority::Idle, "idle", "when nobody else wants"),
];

const CLASSES: [(Class, &str, &str); 2] = [
    (Class::BestEffort, "be", "best-effort: takes turns"),
    (Class::LatencyCritical, "lc", "latency-critical: has the GPU whenever it has work"),
];

fn priorities() -> impl clap::builder::TypedValueParser<Value = Priority> {
    one_of(&PRIORITIES)
}

fn classes() -> impl clap::builder::TypedValueParser<Value = Class> {
    one_of(&CLASSES)
}

/// A choice among words, each with its help.
fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [(T, &'static str, &'static str)],
) -> impl clap::builder::TypedValueParser<Value = T> {
    let words = choices.iter().map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).map(move |word| {
        let found = choices.iter().find(|(_, known, _)| *known == word);
        found.map(|&(value, ..)| value).expect("the parser takes known words only")
    })
}
