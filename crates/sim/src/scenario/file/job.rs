//! `[[job]]`: its terms, its memory and what it does.

use super::super::document::{Node, Place, Problem, Value};
use super::super::fields::{Fields, quantity, text};
use super::super::quantity::{BYTES, SPAN};
use super::super::{Gpu, Hints, Job, Memory, Work};
use super::numbers;
use sched::{Bytes, Class, Priority, Ratio, Settings, Span, Terms, UserId, WhenFull};

/// Copies of a job, and tenants in one.
const COPIES_MAX: u32 = 100_000;
/// Handles of one tenant: more than any program has.
const HANDLES_MAX: u64 = 65_536;
/// The handles of a tenant that says nothing of them.
const HANDLE_DEFAULT: Bytes = Bytes::from_mib(256);
/// Letters in a name.
const NAME_CHARS_MAX: usize = 64;
/// Requests a second of one tenant.
const PER_SECOND_MAX: f64 = 1e6;

const CLASSES: [(&str, Class); 4] = [
    ("latency-critical", Class::LatencyCritical),
    ("best-effort", Class::BestEffort),
    ("lc", Class::LatencyCritical),
    ("be", Class::BestEffort),
];
const PRIORITIES: [(&str, Priority); 5] = [
    ("realtime", Priority::Realtime),
    ("high", Priority::High),
    ("normal", Priority::Normal),
    ("low", Priority::Low),
    ("idle", Priority::Idle),
];
const WHEN_FULL: [(&str, WhenFull); 2] = [("fail", WhenFull::Fail), ("wait", WhenFull::Wait)];

/// A job and how many of its kind there are.
pub(super) fn read(
    node: &Node,
    gpus: &[Gpu],
    settings: &Settings,
    limit: Span,
) -> Result<(Job, u32), Problem> {
    let mut from = Fields::of("[[job]]", node)?;
    let name_node = from.need("name", "\"train\"")?;
    let name = text("name", name_node)?.to_owned();
    if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Problem::new(&name_node.place, "`name` is too long or has control characters")
            .hint(format!("write at most {NAME_CHARS_MAX} letters")));
    }
    let mut copies = 1;
    from.count_u32("copies", &mut copies, COPIES_MAX)?;
    let mut tenants = 1;
    from.count_u32("tenants", &mut tenants, COPIES_MAX)?;
    let terms = terms(&mut from)?;
    let named = match from.take("gpus") {
        Some(node) => {
            let named = numbers("gpus", node, gpus.len())?;
            if named.len() != tenants as usize {
                let reason = format!("`gpus` names {} for {tenants} tenants", named.len());
                return Err(Problem::new(&node.place, reason).hint("name one GPU for each tenant of the job"));
            }
            named
        }
        None => Vec::new(),
    };
    let mut arrives = Span::ZERO;
    from.span("arrives", &mut arrives)?;
    if arrives >= limit {
        return Err(Problem::new(
            &from.place_of("arrives"),
            format!("`{name}` arrives at {arrives}, after the end at {limit}"),
        )
        .hint("let it arrive earlier, or raise `limit`"));
    }
    let mut dies = Span::ZERO;
    from.span("dies", &mut dies)?;
    let dies = from.take("dies").map(|_| dies);
    if dies.is_some_and(|dies| dies <= arrives) {
        return Err(Problem::new(&from.place_of("dies"), format!("`{name}` dies before it arrives"))
            .hint("`dies` counts from the beginning of the scenario, as `arrives` does"));
    }
    let memory_node = from.need("memory", "\"12GiB\"")?;
    let memory = memory(memory_node)?;
    fits(&name, &memory, &memory_node.place, &terms, gpus, &named, settings)?;
    let work = work(from.need("work", "{ kind = \"steady\", total = \"60s\" }")?)?;
    from.finish()?;
    Ok((Job { name, terms, tenants, gpus: named, arrives, dies, memory, work }, copies))
}

fn terms(from: &mut Fields<'_>) -> Result<Terms, Problem> {
    let mut terms = Terms::default();
    let mut user = 1;
    from.count_u32("user", &mut user, u32::MAX)?;
    terms.user = UserId(user);
    from.count_u32("weight", &mut terms.weight, 1_000_000)?;
    from.word("class", &mut terms.class, &CLASSES)?;
    from.word("priority", &mut terms.priority, &PRIORITIES)?;
    from.word("when_full", &mut terms.when_full, &WHEN_FULL)?;
    from.truth("gang", &mut terms.gang)?;
    from.truth("reserve", &mut terms.reserve)?;
    let mut slo = Span::ZERO;
    from.span("slo", &mut slo)?;
    terms.slo = from.take("slo").map(|_| slo);
    let mut memory_max = Bytes::ZERO;
    from.bytes("memory_max", &mut memory_max)?;
    terms.memory_max = from.take("memory_max").map(|_| memory_max);
    let mut compute_max = Ratio::ZERO;
    from.part("compute_max", &mut compute_max)?;
    terms.compute_max = from.take("compute_max").map(|_| compute_max);
    for (key, zero) in [
        ("slo", terms.slo == Some(Span::ZERO)),
        ("memory_max", terms.memory_max == Some(Bytes::ZERO)),
        ("compute_max", terms.compute_max == Some(Ratio::ZERO)),
    ] {
        if zero {
            return Err(Problem::new(
                &from.place_of(key),
                format!("`{key}` is zero, so the job could never run"),
            )
            .hint(format!("leave `{key}` out for no bound")));
        }
    }
    Ok(terms)
}

fn memory(node: &Node) -> Result<Memory, Problem> {
    let mut memory =
        Memory { bytes: Bytes::ZERO, handle: HANDLE_DEFAULT, dirty: Ratio::ONE, growth: None, pause: None };
    if !matches!(node.value, Value::Table(_)) {
        memory.bytes = Bytes(quantity("memory", node, &BYTES)?);
    } else {
        let mut from = Fields::of("`memory`", node)?;
        from.need("bytes", "\"12GiB\"")?;
        from.bytes("bytes", &mut memory.bytes)?;
        from.bytes("handle", &mut memory.handle)?;
        from.part("dirty", &mut memory.dirty)?;
        let mut pause = Span::ZERO;
        from.span("pause", &mut pause)?;
        memory.pause = (pause > Span::ZERO).then_some(pause);
        memory.growth = from.take("growth").map(|growth| grows(growth, memory.bytes)).transpose()?;
        from.finish()?;
    }
    let most = memory.growth.map_or(memory.bytes, |(_, _, up_to)| up_to);
    if memory.bytes == Bytes::ZERO {
        return Err(Problem::new(&node.place, "`memory` is zero, and every program has some")
            .hint(format!("write {} as in {}", BYTES.name, BYTES.example)));
    }
    if memory.handle == Bytes::ZERO || most.0.div_ceil(memory.handle.0) > HANDLES_MAX {
        return Err(Problem::new(
            &node.place,
            format!("{most} in handles of {} bytes are too many", memory.handle.0),
        )
        .hint(format!("a tenant has at most {HANDLES_MAX} handles")));
    }
    memory.handle = memory.handle.min(memory.bytes);
    Ok(memory)
}

fn grows(node: &Node, bytes: Bytes) -> Result<(Bytes, Span, Bytes), Problem> {
    let mut from = Fields::of("`growth`", node)?;
    let (mut step, mut every, mut up_to) = (Bytes::ZERO, Span::ZERO, Bytes::ZERO);
    from.need("step", "\"1GiB\"")?;
    from.bytes("step", &mut step)?;
    from.need("every", "\"10s\"")?;
    from.span("every", &mut every)?;
    from.need("up_to", "\"8GiB\"")?;
    from.bytes("up_to", &mut up_to)?;
    if step == Bytes::ZERO || every == Span::ZERO || up_to <= bytes {
        return Err(Problem::new(
            from.place(),
            format!("memory cannot grow from {bytes} to {up_to} by {step} every {every}"),
        )
        .hint("`step` and `every` are more than zero, and `up_to` is more than `bytes`"));
    }
    from.finish()?;
    Ok((step, every, up_to))
}

/// A tenant has to fit on its GPU when it is alone there: no core could help it otherwise.
fn fits(
    name: &str,
    memory: &Memory,
    place: &Place,
    terms: &Terms,
    gpus: &[Gpu],
    named: &[u16],
    settings: &Settings,
) -> Result<(), Problem> {
    let most = memory.growth.map_or(memory.bytes, |(_, _, up_to)| up_to);
    let room = |gpu: &Gpu| gpu.capacity.less(gpu.reserve).less(gpu.residue).less(settings.headroom);
    let room = match named {
        [] => gpus.iter().map(room).max(),
        named => named.iter().map(|number| room(&gpus[usize::from(*number)])).min(),
    };
    let room = room.unwrap_or(Bytes::ZERO);
    if most > room {
        return Err(Problem::new(
            place,
            format!(
                "a tenant of `{name}` has {most}, and its GPU has room for {room} beside its context, the mover and \
                 `headroom`"
            ),
        )
        // In MiB and rounded down: what the hint says is accepted when it is written so.
        .hint(format!("make its memory at most \"{}MiB\", or the GPU's `capacity` larger", room.0 >> 20)));
    }
    if let Some(limit) = terms.memory_max.filter(|limit| *limit < most) {
        return Err(Problem::new(
            place,
            format!("a tenant of `{name}` has {most}, more than its `memory_max` of {limit}"),
        )
        .hint("make one of them fit the other"));
    }
    Ok(())
}

fn work(node: &Node) -> Result<Work, Problem> {
    #[derive(Clone, Copy)]
    enum Kind {
        Steady,
        Steps,
        Bursts,
        Requests,
    }
    let words = [
        ("steady", Kind::Steady),
        ("steps", Kind::Steps),
        ("bursts", Kind::Bursts),
        ("requests", Kind::Requests),
    ];
    let mut from = Fields::of("`work`", node)?;
    from.need("kind", "\"steady\"")?;
    let mut kind = Kind::Steady;
    from.word("kind", &mut kind, &words)?;
    let work = match kind {
        Kind::Steady => Work::Steady { total: length(&mut from, "total", "\"159s\"")? },
        Kind::Steps => Work::Steps {
            busy: length(&mut from, "busy", "\"20ms\"")?,
            pause: length(&mut from, "pause", "\"5ms\"")?,
            count: endless_or_count(&mut from)?,
        },
        Kind::Bursts => Work::Bursts {
            on: length(&mut from, "on", "\"5s\"")?,
            off: length(&mut from, "off", "\"10s\"")?,
            count: endless_or_count(&mut from)?,
        },
        Kind::Requests => requests(&mut from)?,
    };
    from.finish()?;
    Ok(work)
}

fn requests(from: &mut Fields<'_>) -> Result<Work, Problem> {
    let node = from.need("per_second", "100")?;
    let per_second = match node.value {
        Value::Integer(number) => number as f64,
        Value::Number(number) => number,
        _ => 0.0,
    };
    if !(per_second > 0.0 && per_second <= PER_SECOND_MAX) {
        return Err(Problem::new(&node.place, "`per_second` is not a number of requests a second")
            .hint(format!("write a number above 0, up to {PER_SECOND_MAX}, without a unit")));
    }
    let service = length(from, "service", "\"87us\"")?;
    if service.as_secs_f64() * per_second >= 1.0 {
        return Err(Problem::new(
            &from.place_of("service"),
            format!("{per_second} requests of {service} a second need more than a whole GPU"),
        )
        .hint("fewer or shorter requests"));
    }
    let mut poisson = false;
    from.truth("poisson", &mut poisson)?;
    let hints = from.take("hints").map(hints).transpose()?;
    Ok(Work::Requests { per_second, poisson, service, count: endless_or_count(from)?, hints })
}

fn hints(node: &Node) -> Result<Hints, Problem> {
    let mut from = Fields::of("`hints`", node)?;
    let mut hints = Hints {
        ahead: length(&mut from, "ahead", "\"2ms\"")?,
        error: Span::ZERO,
        missing: Ratio::ZERO,
        false_per_request: Ratio::ZERO,
    };
    from.span("error", &mut hints.error)?;
    from.part("missing", &mut hints.missing)?;
    from.ratio("false_per_request", &mut hints.false_per_request)?;
    from.finish()?;
    Ok(hints)
}

/// A length of time that has to be there and is not zero.
fn length(from: &mut Fields<'_>, key: &'static str, example: &str) -> Result<Span, Problem> {
    let node = from.need(key, example)?;
    match quantity(key, node, &SPAN)? {
        0 => Err(Problem::new(&node.place, format!("`{key}` is zero"))
            .hint(format!("write for example {key} = {example}"))),
        nanos => Ok(Span(nanos)),
    }
}

/// How many; as long as the scenario lasts if nothing is said.
fn endless_or_count(from: &mut Fields<'_>) -> Result<u64, Problem> {
    let mut count = 0;
    from.count("count", &mut count, u64::from(u32::MAX)).map_err(|problem| {
        let hint = problem.hint.unwrap_or_default();
        Problem {
            hint: Some(format!("{hint}, or leave `count` out for work that lasts as long as the scenario")),
            ..problem
        }
    })?;
    Ok(count)
}
