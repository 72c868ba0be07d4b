//! `rota demo`: programs that do not fit together, first one after the other, then by turns under rota.
//!
//! Everything is real but the GPU, which is a virtual one, small enough for any machine: the daemon, the shim, the moves, and
//! workers that rewrite and check every byte they have. All of it lives in a temporary folder and ends with the demo. What
//! is said of it at the end was measured in it.

mod bars;
mod parts;
mod program;
mod report;
mod screen;
mod stage;
mod timeline;

use crate::args::{DemoArgs, Output};
use crate::columns::hanging;
use crate::{daemon, print};
use anyhow::{Context as _, bail, ensure};
use bars::{Doing, Standing};
use parts::Parts;
use program::Program;
use report::{Act, Ended, Report, timelines};
use screen::{Picture, Screen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stage::{GPU_MIB, PROGRAM_MIB, Stage, steps_in, work};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use timeline::Timeline;
use wire::Listing;

/// Who comes on stage, in this order.
const NAMES: [&str; 6] = ["ada", "bea", "cyd", "dan", "eve", "fay"];
/// Under rota they come shortly one after the other, as people start programs.
const APART: Duration = Duration::from_millis(400);
/// Between two looks at whether somebody ended: what one waits for another natively is no more than this.
const TICK: Duration = Duration::from_millis(5);
/// Between two pictures.
const PICTURE: Duration = Duration::from_millis(100);
/// An act may take so many times as long as its work, on a slow or busy machine, and a minute more.
const SLOWNESS_MAX: u32 = 10;
const SLACK: Duration = Duration::from_secs(60);

/// How the programs of an act run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Past rota, each when the one before has ended.
    Serial,
    /// Under rota, all at once.
    Rota,
}

/// What is to be done in each act.
struct Plan {
    names: &'static [&'static str],
    steps: u64,
    /// How long an act may take.
    limit: Duration,
}

/// Runs it, and prints what happened.
pub(crate) fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let parts = Parts::find()?;
    let stopped = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone()).context("cannot wait for signals")?;
    }
    let is_json = args.output.form() == Output::Json;
    let mut screen = if is_json { Screen::nobody() } else { Screen::stdout() };
    let time = Duration::from_secs(args.seconds);
    let plan = Plan {
        names: &NAMES[..(args.programs as usize).min(NAMES.len())],
        steps: steps_in(time),
        limit: time * args.programs * SLOWNESS_MAX + SLACK,
    };
    screen.say(&introduction(&plan, Screen::width()))?;
    let mut stage = Stage::set(&parts, &stopped)?;
    let serial = act(&mut stage, &mut screen, &plan, Way::Serial)?;
    stage.start_daemon(args.programs)?;
    let gpus = daemon::listing(&stage.socket())?.gpus;
    let gpu = gpus.into_iter().next().context("the daemon shares no GPU")?.name;
    let rota = act(&mut stage, &mut screen, &plan, Way::Rota)?;
    let report = Report::of(gpu, &serial, &rota, plan.steps);
    if is_json {
        print(&(serde_json::to_string_pretty(&report).context("cannot write the report as JSON")? + "\n"))?;
    } else {
        let width = Screen::width();
        screen.say(&(timelines(&serial, &rota, width) + &report.table(width)))?;
    }
    ensure!(report.is_verified(), "the demo could not be verified: what programs found is above");
    Ok(())
}

/// What is shown, and what of it is scaled.
fn introduction(plan: &Plan, width: usize) -> String {
    let programs = match plan.names.len() {
        1 => "1 program".to_owned(),
        count => format!("{count} programs"),
    };
    let paragraphs = [
        format!(
            "{programs} of {PROGRAM_MIB} MiB on a virtual GPU of {GPU_MIB} MiB: each fits, no two do. Each has {} steps \
             to do, and in every one it checks all its bytes, rewrites them, and checks them again.",
            plan.steps
        ),
        "Scaled: sizes are a hundredth of 12 GiB on 16 GiB, and the bus is a 33rd of an H200's, so a move takes a third of \
         its time there. Turns are as long as moves make worthwhile, so they are shorter as well. Freezing takes as long as \
         there, and kernels are far slower."
            .to_owned(),
    ];
    paragraphs.map(|text| hanging(&text, 0, Some(width)) + "\n\n").concat()
}

/// Runs all programs to their end.
fn act(stage: &mut Stage<'_>, screen: &mut Screen, plan: &Plan, way: Way) -> anyhow::Result<Act> {
    let title = match way {
        Way::Serial => "1. One after the other, without rota",
        Way::Rota => "2. All together, by turns, under rota",
    };
    stage.programs.clear();
    let begun = Instant::now();
    let mut drawn: Option<Instant> = None;
    let took = loop {
        stage.go_on()?;
        if begun.elapsed() > plan.limit {
            bail!("the programs do not come to an end\n{}", stage.log());
        }
        let last = all_over(stage)?;
        let count = stage.programs.len();
        let next_may_begin = match way {
            Way::Serial => last.is_some() || count == 0,
            Way::Rota => begun.elapsed() >= APART * count as u32,
        };
        if let Some(name) = plan.names.get(count)
            && next_may_begin
        {
            let mut words = work(plan.steps);
            words.extend(["--seed".to_owned(), (count + 1).to_string()]);
            match way {
                Way::Serial => stage.start_natively(name, &words)?,
                Way::Rota => stage.start_under_rota(name, &words)?,
            }
            continue;
        }
        let over = last.filter(|_| count == plan.names.len());
        if over.is_some() || drawn.is_none_or(|drawn| drawn.elapsed() >= PICTURE) {
            let listing = match way {
                Way::Serial => None,
                Way::Rota => Some(
                    daemon::listing(&stage.socket())
                        .map_err(|error| error.context(format!("the daemon was lost\n{}", stage.log())))?,
                ),
            };
            let standings = standings(stage, plan, listing.as_ref())?;
            screen.show(&Picture { title, at: begun.elapsed(), standings: &standings })?;
            drawn = Some(Instant::now());
        }
        match over {
            Some(last) => break last.saturating_duration_since(begun),
            None => std::thread::sleep(TICK),
        }
    };
    screen.keep()?;
    let timeline = match way {
        Way::Serial => Timeline::of_runs(runs(stage, begun)?),
        Way::Rota => {
            let events = std::fs::read_to_string(stage.events()).context("the daemon left no events")?;
            Timeline::of(&events)
        }
    };
    let ended = |program: &Program| {
        let said = program.said();
        Ended { name: program.name.clone(), steps: said.steps, wrong: said.wrong }
    };
    Ok(Act { timeline, took, programs: stage.programs.iter().map(ended).collect() })
}

/// When the last one ended, if all have that were started. One that failed is an error, unless all that it has to complain of
/// is wrong bytes: those are the report's.
fn all_over(stage: &mut Stage<'_>) -> anyhow::Result<Option<Instant>> {
    let mut last = None;
    for number in 0..stage.programs.len() {
        let program = &mut stage.programs[number];
        let Some((at, status)) = program.over()? else { return Ok(None) };
        let said = program.said();
        let came_to_its_end = said.ended && (status.success() || said.wrong > 0);
        ensure!(came_to_its_end, "{} ended with {status}\n{}", stage.programs[number].name, stage.log());
        last = last.max(Some(at));
    }
    Ok(last)
}

/// From when to when each ran.
fn runs(stage: &mut Stage<'_>, begun: Instant) -> anyhow::Result<Vec<(String, Duration, Duration)>> {
    let mut runs = Vec::new();
    for program in &mut stage.programs {
        let (end, _) = program.over()?.context("a program has not ended")?;
        let since = |at: Instant| at.saturating_duration_since(begun);
        runs.push((program.name.clone(), since(program.begun), since(end)));
    }
    Ok(runs)
}

/// How everybody stands, whether started or not.
fn standings(stage: &mut Stage<'_>, plan: &Plan, listing: Option<&Listing>) -> anyhow::Result<Vec<Standing>> {
    let mut standings = Vec::new();
    for (number, name) in plan.names.iter().enumerate() {
        let mut standing = Standing {
            name: String::from(*name),
            doing: Doing::Later,
            steps: 0,
            steps_all: plan.steps,
            wrong: 0,
            memory: None,
            turns: None,
        };
        if let Some(program) = stage.programs.get_mut(number) {
            let is_over = program.over()?.is_some();
            let said = program.said();
            (standing.steps, standing.wrong) = (said.steps, said.wrong);
            let tenant =
                listing.and_then(|listing| listing.tenants.iter().find(|tenant| tenant.job == *name));
            program.turns = tenant.map(|tenant| tenant.turns).or(program.turns);
            standing.turns = program.turns;
            standing.memory = tenant.map(|tenant| (tenant.resident_bytes, tenant.away_bytes));
            standing.doing = match (tenant, listing) {
                _ if is_over => Doing::Done,
                (Some(tenant), _) => Doing::of(tenant.state),
                (None, Some(_)) => Doing::Starting,
                // Natively all of it is there from its first step on.
                (None, None) if said.steps == 0 => Doing::Starting,
                (None, None) => {
                    standing.memory = Some((PROGRAM_MIB << 20, 0));
                    Doing::Running
                }
            };
        }
        standings.push(standing);
    }
    Ok(standings)
}
