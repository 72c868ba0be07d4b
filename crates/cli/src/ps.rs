//! `rota ps`: one line per GPU, then one per tenant.

use crate::args::{Output, PsArgs};
use crate::columns::{INDENT, Side, fitting, hanging, in_lines, terminal_width};
use crate::daemon;
use crate::print;
use crate::quantity::{printable, size, span};
use anyhow::Context as _;
use std::path::Path;
use std::time::Duration;
use wire::quantity::Roughly;
use wire::{Gpu, Listing, Tenant, Unmanaged};

/// Prints who is there.
pub(crate) fn ps(args: &PsArgs, socket: &Path) -> anyhow::Result<()> {
    let listing = daemon::listing(socket)?;
    let text = match args.output.form() {
        Output::Table => table(&listing),
        Output::Json => {
            serde_json::to_string_pretty(&listing).context("cannot write the listing as JSON")? + "\n"
        }
    };
    print(&text)
}

const COLUMNS: [(&str, Side); 9] = [
    ("PID", Side::Right),
    ("JOB", Side::Left),
    ("PROGRAM", Side::Left),
    ("STATE", Side::Left),
    ("RESIDENT", Side::Right),
    ("AWAY", Side::Right),
    ("TURNS", Side::Right),
    ("WAITING", Side::Right),
    ("NEXT", Side::Left),
];

fn table(listing: &Listing) -> String {
    let mut text = String::new();
    // One GPU needs no number.
    let several = listing.gpus.len() > 1;
    for (number, gpu) in listing.gpus.iter().enumerate() {
        let mut parts = gpu_parts(gpu);
        if several {
            parts.insert(0, number.to_string());
        }
        text += &in_lines(&parts, terminal_width());
    }
    if listing.gpus.is_empty() {
        text += "The daemon shares no GPU.\n";
    }
    text += &strangers(listing);
    text.push('\n');
    if listing.tenants.is_empty() {
        let flag = if listing.gpus.iter().any(|gpu| gpu.vgpu.is_some()) { "--vgpu " } else { "" };
        let nobody = format!("No program is here now. Start one with: rota run {flag}-- COMMAND");
        return text + &hanging(&nobody, 0, terminal_width()) + "\n";
    }
    let (mut names, mut sides): (Vec<String>, Vec<Side>) =
        COLUMNS.iter().map(|(name, side)| (String::from(*name), *side)).unzip();
    let mut rows: Vec<Vec<String>> = listing.tenants.iter().map(|tenant| cells(tenant).into()).collect();
    // Most programs have none.
    if listing.tenants.iter().any(|tenant| tenant.host_bytes > 0) {
        names.insert(HOST_AT, "HOST".into());
        sides.insert(HOST_AT, Side::Right);
        for (row, tenant) in rows.iter_mut().zip(&listing.tenants) {
            row.insert(HOST_AT, size(tenant.host_bytes));
        }
    }
    if several {
        names.insert(GPU_AT, "GPU".into());
        sides.insert(GPU_AT, Side::Right);
        for (row, tenant) in rows.iter_mut().zip(&listing.tenants) {
            let number = listing.gpus.iter().position(|gpu| gpu.uuid == tenant.gpu);
            row.insert(GPU_AT, number.map_or("-".into(), |number| number.to_string()));
        }
    }
    rows.insert(0, names);
    // Which program it is about is said beside whatever does not fit.
    let in_front = if several { 3 } else { 2 };
    text + &fitting(&sides, &rows, in_front, terminal_width())
}

/// Where what it has in host memory stands in a tenant's line, before its GPU is put in.
const HOST_AT: usize = 6;

/// Where the number of its GPU stands in a tenant's line.
const GPU_AT: usize = 1;

fn gpu_parts(gpu: &Gpu) -> Vec<String> {
    let mut parts = vec![
        printable(&gpu.uuid),
        printable(&gpu.name),
        format!("{} of {} in use", size(gpu.used_bytes), size(gpu.capacity_bytes)),
        format!("arena {} of {}", size(gpu.arena_used_bytes), size(gpu.arena_bytes)),
    ];
    if gpu.arena_clean_bytes > 0 {
        parts.push(format!("and clean copies {}", size(gpu.arena_clean_bytes)));
    }
    parts.extend(gpu.vgpu.as_ref().map(|folder| format!("virtual, in {}", printable(folder))));
    parts
}

/// Those who use a GPU past rota, a line for each.
fn strangers(listing: &Listing) -> String {
    let line = |stranger: &Unmanaged| {
        let program = if stranger.program.is_empty() { "?" } else { &stranger.program };
        let of = match &stranger.job {
            Some(job) => format!(" of job {}, which lost the shim,", printable(job)),
            None => String::new(),
        };
        let number = listing.gpus.iter().position(|gpu| gpu.uuid == stranger.gpu);
        let on = match number {
            Some(number) if listing.gpus.len() > 1 => format!(" of GPU {number}"),
            _ => String::new(),
        };
        let (pid, program) = (stranger.pid, printable(program));
        let text = format!("unmanaged: process {pid} ({program}){of} holds {}{on}", size(stranger.bytes));
        hanging(&text, INDENT, terminal_width()) + "\n"
    };
    listing.unmanaged.iter().map(line).collect()
}

/// Its place among those who wait, and about when it is next.
pub(crate) fn next(place: Option<u32>, places: Option<u32>, forecast_ns: Option<u64>) -> String {
    let Some(of) = places else { return "-".into() };
    let when = forecast_ns.map_or("time unknown".into(), |ns| Roughly(Duration::from_nanos(ns)).to_string());
    match place {
        Some(place) => format!("{place} of {of}, {when}"),
        None => format!("place unknown, {when}"),
    }
}

fn cells(tenant: &Tenant) -> [String; COLUMNS.len()] {
    let waiting = match tenant.waiting_ns {
        0 => "-".into(),
        ns => span(Duration::from_nanos(ns)),
    };
    [
        tenant.pid.to_string(),
        printable(&tenant.job),
        printable(&tenant.program),
        tenant.state.to_string(),
        size(tenant.resident_bytes),
        size(tenant.away_bytes),
        tenant.turns.to_string(),
        waiting,
        match (tenant.not_back, tenant.not_deep) {
            (Some(why), _) => why.to_string(),
            (None, Some(why)) => why.to_string(),
            (None, None) => next(tenant.place, tenant.places, tenant.forecast_ns),
        },
    ]
}
