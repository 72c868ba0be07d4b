//! `rota status`: how the daemon is, and what it shares.

use crate::args::{Output, StatusArgs};
use crate::columns::{GAP, INDENT, Side, columns, fitting, hanging, terminal_width};
use crate::describe::as_json;
use crate::quantity::{printable, size, so_often, span, user};
use crate::{daemon, print};
use std::path::Path;
use std::time::Duration;
use wire::quantity::Span;
use wire::{Answer, Command, SelfTest, Status};

/// Prints it.
pub(crate) fn status(args: &StatusArgs, socket: &Path) -> anyhow::Result<()> {
    let status = ask(socket)?;
    match args.output.form() {
        Output::Json => print(&as_json(&status)?),
        Output::Table => print(&text(&status, socket)),
    }
}

/// How the daemon at `socket` is.
pub(crate) fn ask(socket: &Path) -> anyhow::Result<Status> {
    match daemon::command(socket, Command::Status)? {
        Answer::Status(status) => Ok(status),
        other => Err(daemon::strange(socket, &other)),
    }
}

/// How programs are stopped where no self-test was passed.
pub(crate) const HELD_BACK: &str =
    "programs are not frozen here: launches are held back, so a turn ends only when kernels end";

/// What a self-test found, in words.
pub(crate) fn self_test(found: &SelfTest) -> String {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    format!(
        "a running kernel was frozen and thawed {} times, in at most {:.2} and {:.2} ms",
        found.rounds,
        ms(found.freeze_max_ns),
        ms(found.thaw_max_ns)
    )
}

fn text(status: &Status, socket: &Path) -> String {
    let of = |ns: u64| span(Duration::from_nanos(ns));
    let first = format!(
        "rotad {}, process {} of {}, up for {}",
        printable(&status.version),
        status.pid,
        user(status.uid),
        of(status.uptime_ns)
    );
    let mut text = hanging(&first, INDENT, terminal_width()) + "\n";
    // As in the configuration.
    let set = |ns: u64| Span(Duration::from_nanos(ns));
    let policy = printable(&status.policy);
    let turns = match (status.turn_min_ns, status.turn_max_ns) {
        (min, max) if min == max => format!("{policy} turns of {}", set(min)),
        (min, max) => format!("{policy} turns of {} to {}", set(min), set(max)),
    };
    let ends = match status.idle_exit_ns {
        Some(ns) => format!("when nobody was there for {}", set(ns)),
        None => "when it is told to".into(),
    };
    let again = match status.worker_restarts {
        0 => String::new(),
        times => format!(", started anew {}", so_often(times.into())),
    };
    let parts = match status.keeper_pid {
        Some(keeper) => format!("process {}{again}; process {keeper} keeps what is away", status.worker_pid),
        None => format!("process {}{again}; nobody keeps what is away", status.worker_pid),
    };
    let rows = [
        ("worker", parts),
        ("socket", socket.display().to_string()),
        ("config", status.config.as_deref().map_or("no file".into(), printable)),
        ("sharing", turns),
        ("self-test", status.self_test.as_ref().map_or(HELD_BACK.into(), self_test)),
        ("ends", ends),
        (
            "now",
            format!(
                "{}, {}: {} running, {} waiting{}",
                count(status.jobs, "job"),
                count(status.tenants, "tenant"),
                status.running,
                status.waiting,
                lc_modes(status)
            ),
        ),
    ];
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let indent = 2 + names + GAP.len();
    let rows = rows.map(|(name, value)| [format!("  {name}"), hanging(&value, indent, terminal_width())]);
    text += &columns(&[Side::Left, Side::Left], &rows);
    let header = ["GPU", "NAME", "IN USE", "ARENA", "CLEAN COPIES", "UUID"].map(str::to_owned);
    let gpus = status.gpus.iter().enumerate().map(|(index, gpu)| {
        let unsaid = gpu.vgpu.is_some() && !gpu.name.contains("virtual");
        let name = printable(&gpu.name) + if unsaid { " (virtual)" } else { "" };
        [
            index.to_string(),
            name,
            format!("{} of {}", size(gpu.used_bytes), size(gpu.capacity_bytes)),
            format!("{} of {}", size(gpu.arena_used_bytes), size(gpu.arena_bytes)),
            size(gpu.arena_clean_bytes),
            printable(&gpu.uuid),
        ]
    });
    let rows: Vec<_> = std::iter::once(header).chain(gpus).collect();
    use Side::{Left, Right};
    text.push('\n');
    text + &fitting(&[Right, Left, Right, Right, Right, Left], &rows, 1, terminal_width())
}

/// Which GPUs are latency-critical programs' first just now.
fn lc_modes(status: &Status) -> String {
    let gpus = status.gpus.iter().enumerate();
    let on = gpus.filter_map(|(index, gpu)| Some((index, Duration::from_nanos(gpu.lc_mode_for_ns?))));
    on.map(|(index, length)| format!("; GPU {index} in lc mode for {}", span(length))).collect()
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
