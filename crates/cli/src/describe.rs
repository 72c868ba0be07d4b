//! `rota describe`: all about a job, a process or a GPU.

mod statistics;

use crate::args::{DescribeArgs, Output};
use crate::columns::{hanging, terminal_width};
use crate::ps::next;
use crate::quantity::{printable, size, so_often, span, user};
use crate::{daemon, print};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use wire::quantity::Share;
use wire::{Class, Command, Description, GpuView, Hints, JobView, LcMode, TenantView, Terms};

/// Prints it.
pub(crate) fn describe(args: &DescribeArgs, socket: &Path) -> anyhow::Result<()> {
    let description = daemon::described(socket, Command::Describe { what: args.what.clone() })?;
    match args.output.form() {
        Output::Json => print(&as_json(&description)?),
        Output::Table => print(&text(&description)),
    }
}

/// For programs.
pub(crate) fn as_json<T: serde::Serialize>(what: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(what).context("cannot write it as JSON")? + "\n")
}

/// Terms on one line.
pub(crate) fn terms(terms: &Terms) -> String {
    let Terms { weight, class, priority, slo_ns, wait, gang, .. } = terms;
    let mut text = format!("weight {weight}, class {class}, priority {priority}, ");
    text += &match terms.memory_max_bytes {
        Some(bytes) => format!("memory up to {}", size(bytes)),
        None => "memory without limit".into(),
    };
    if terms.oversize_bytes > 0 {
        text += &format!(", {} more in host memory", size(terms.oversize_bytes));
    }
    text += &match terms.cores_max_millionths {
        Some(share) => format!(", up to {} of the time", Share::of_millionths(share)),
        None => ", all of the time".into(),
    };
    if let Some(slo) = slo_ns {
        text += &format!(", served within {}", span(Duration::from_nanos(*slo)));
    }
    text += if terms.reserve { ", its memory stays on the GPU" } else { "" };
    text += if *wait { ", waits for memory" } else { "" };
    text + if *gang { ", its processes run together" } else { "" }
}

fn text(description: &Description) -> String {
    let mut parts: Vec<String> = description.gpu.iter().map(gpu).collect();
    parts.extend(description.jobs.iter().map(job));
    parts.join("\n")
}

/// Lines of a name and a value.
struct Lines(String);

impl Lines {
    fn titled(title: String) -> Self {
        Self(title + "\n")
    }

    fn line(&mut self, indent: usize, name: &str, value: impl std::fmt::Display) {
        let value = hanging(&value.to_string(), indent + 12, terminal_width());
        let _ = writeln!(self.0, "{:indent$}{name:<10}  {value}", "");
    }
}

fn gpu(gpu: &GpuView) -> String {
    let mut lines = Lines::titled(format!("GPU {}: {}", gpu.index, printable(&gpu.name)));
    lines.line(2, "UUID", printable(&gpu.uuid));
    if let Some(folder) = &gpu.vgpu {
        lines.line(2, "virtual", format!("in {}", printable(folder)));
    }
    let daemons = size(gpu.reserve_bytes);
    let used = format!(
        "{} of {} in use, {daemons} kept for the daemon",
        size(gpu.used_bytes),
        size(gpu.capacity_bytes)
    );
    let strangers = match gpu.unmanaged_bytes {
        0 => String::new(),
        bytes => format!(", {} in use outside of rota", size(bytes)),
    };
    lines.line(2, "memory", used + &strangers);
    if gpu.stays_bytes > 0 {
        lines.line(
            2,
            "stays",
            format!("{} is reserved or cannot move, and is for nobody else", size(gpu.stays_bytes)),
        );
    }
    let guarantee = Share::of_millionths(gpu.be_guarantee_millionths);
    let favour = printable(&gpu.favour);
    lines.line(
        2,
        "beside lc",
        format!("favours {favour}; best-effort programs get at least {guarantee} of the time"),
    );
    if gpu.lc_mode.begun > 0 {
        let (time, cost) = lc_mode(&gpu.lc_mode);
        lines.line(2, "lc mode", time);
        lines.line(2, "", cost);
    }
    let clean = match gpu.arena_clean_bytes {
        0 => String::new(),
        bytes => format!(", {} more by clean copies, which make room", size(bytes)),
    };
    let (used, all) = (size(gpu.arena_used_bytes), size(gpu.arena_bytes));
    lines.line(2, "arena", format!("{used} of {all} taken{clean}"));
    match gpu.turn_of_pid {
        Some(pid) => lines.line(2, "turn", format!("process {pid}")),
        None => lines.line(2, "turn", "nobody's"),
    }
    lines.0
}

/// When it was on, and what that cost.
fn lc_mode(mode: &LcMode) -> (String, String) {
    let of = |ns: u64| span(Duration::from_nanos(ns));
    let LcMode { on_for_ns, begun, lasted_ns, held_back_ns, freezes, switching_ns } = mode;
    let now = on_for_ns.map_or("off".into(), |ns| format!("on for {}", of(ns)));
    (
        format!("{now}; began {}, {} in all", so_often(*begun), of(*lasted_ns)),
        format!(
            "kept best-effort programs off the GPU for {}; froze one {}, {} freezing and thawing",
            of(*held_back_ns),
            so_often(*freezes),
            of(*switching_ns)
        ),
    )
}

fn job(job: &JobView) -> String {
    let mut lines = Lines::titled(format!("Job {}", printable(&job.job)));
    let states: Vec<String> = job.tenants.iter().map(|tenant| tenant.state.to_string()).collect();
    let processes: BTreeSet<u32> = job.tenants.iter().map(|tenant| tenant.pid).collect();
    let state = match (job.paused, processes.len(), states.len()) {
        (true, ..) => "paused".into(),
        (false, 0, _) => "no program of it uses the GPU now".into(),
        (false, _, 1) => states.concat(),
        (false, 1, gpus) => format!("on {gpus} GPUs: {}", states.join(", ")),
        (false, count, _) => format!("{count} programs: {}", states.join(", ")),
    };
    lines.line(2, "state", state);
    lines.line(2, "user", user(job.uid));
    let begun = format!("{} ago", span(Duration::from_nanos(job.age_ns)));
    lines.line(
        2,
        "begun",
        match job.root_pid {
            Some(pid) => format!("{begun}, by process {pid}"),
            None => begun,
        },
    );
    if let Some(why) = &job.placed {
        lines.line(2, "placed", printable(why));
    }
    lines.line(
        2,
        "class",
        match job.terms.class {
            Class::LatencyCritical => "lc, latency-critical",
            Class::BestEffort => "be, best-effort",
        },
    );
    lines.line(2, "weight", job.terms.weight);
    lines.line(2, "priority", job.terms.priority);
    let gpus: BTreeSet<&str> = job.tenants.iter().map(|tenant| tenant.gpu.as_str()).collect();
    let several = gpus.len() > 1;
    let most = match job.terms.memory_max_bytes {
        Some(most) if several => format!("{}, at most {} on each GPU", size(job.used_bytes), size(most)),
        Some(most) => format!("{} of at most {}", size(job.used_bytes), size(most)),
        None => format!("{}, no limit", size(job.used_bytes)),
    };
    let most = match job.terms.oversize_bytes {
        0 => most,
        beyond => format!("{most}, and {} beyond the GPU in host memory", size(beyond)),
    };
    let most = if job.terms.reserve { format!("{most}; stays on the GPU") } else { most };
    let short =
        if job.terms.wait { "waits where memory is short" } else { "out of memory where it is short" };
    lines.line(2, "memory", format!("{most}; {short}"));
    lines.line(
        2,
        "cores",
        match job.terms.cores_max_millionths {
            Some(share) => format!("at most {} of the GPU's time", Share::of_millionths(share)),
            None => "no limit".into(),
        },
    );
    if let Some(slo) = job.terms.slo_ns {
        lines.line(2, "served", format!("within {}", span(Duration::from_nanos(slo))));
    }
    if job.terms.gang {
        lines.line(2, "gang", "its processes run at the same time or not at all");
    }
    lines.line(
        2,
        "GPU time",
        match job.terms.class {
            Class::LatencyCritical => "not counted: it takes no turns".into(),
            Class::BestEffort => format!("{} so far", span(Duration::from_nanos(job.ran_ns))),
        },
    );
    lines.0 + &job.tenants.iter().map(|one| tenant(one, several)).collect::<String>()
}

/// Who gave hints.
fn given(hints: &Hints) -> String {
    let Hints { sdk, shim, forecast, dropped, rhythm_ns, .. } = hints;
    let mut text = format!("{sdk} by the program, {shim} by the shim, {forecast} by forecast");
    if let Some(gap) = rhythm_ns {
        text += &format!(" (one every {})", span(Duration::from_nanos(*gap)));
    }
    text + &match dropped {
        0 => String::new(),
        dropped => format!(", {dropped} not sent"),
    }
}

/// What became of them.
fn became(hints: &Hints) -> String {
    let Hints { good, early, late, false_, missed, warm_ups, warm_ups_failed, .. } = hints;
    let text = format!(
        "{good} good, {early} early, {late} late, {false_} false, {missed} missed; {warm_ups} warm-ups"
    );
    text + &match warm_ups_failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    }
}

fn tenant(tenant: &TenantView, one_of_several: bool) -> String {
    let mut lines = Lines::titled(format!(
        "\n  Process {}, {}: {}",
        tenant.pid,
        printable(&tenant.program),
        tenant.state
    ));
    if one_of_several {
        lines.line(4, "GPU", printable(&tenant.gpu));
    }
    lines.line(4, "why", printable(&tenant.reason));
    lines.line(
        4,
        "memory",
        format!(
            "{} on the GPU, {} away, {} for its context",
            size(tenant.resident_bytes),
            size(tenant.away_bytes),
            size(tenant.context_bytes)
        ),
    );
    if tenant.host_bytes > 0 {
        let host = size(tenant.host_bytes);
        lines.line(4, "host", format!("{host} in host memory, used over the bus"));
    }
    if tenant.rehomed_bytes > 0 {
        let rehomed = size(tenant.rehomed_bytes);
        lines.line(4, "homes", format!("{rehomed} have changed places between the GPU and host memory"));
    }
    if tenant.pinned_bytes > 0 {
        lines.line(4, "pinned", format!("{} of it cannot move", size(tenant.pinned_bytes)));
    }
    lines.line(4, "turns", format!("{}, {} in all", tenant.turns, span(Duration::from_nanos(tenant.ran_ns))));
    if let Some(hints) = &tenant.hints {
        lines.line(4, "hints", given(hints));
        lines.line(4, "", became(hints));
    }
    for (name, value) in tenant.statistics.iter().flat_map(statistics::lines) {
        lines.line(4, name, value);
    }
    if tenant.waiting_ns > 0 {
        let waited = span(Duration::from_nanos(tenant.waiting_ns));
        lines.line(4, "waiting", format!("for {waited}"));
        if tenant.places.is_some() {
            lines.line(4, "next", next(tenant.place, tenant.places, tenant.forecast_ns));
        }
    }
    lines.0
}
