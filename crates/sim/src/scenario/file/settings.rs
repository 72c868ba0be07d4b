//! `[settings]`: the core's own, by their own names.

use super::super::document::{Node, Problem};
use super::super::fields::Fields;
use super::super::quantity::SPAN;
use sched::{Costs, Deadlines, Favour, PolicyKind, Settings, Span};

const POLICIES: [(&str, PolicyKind); 4] = [
    ("fair", PolicyKind::Fair),
    ("priority", PolicyKind::Priority),
    ("deadline", PolicyKind::Deadline),
    ("serial", PolicyKind::Serial),
];

const FAVOURS: [(&str, Favour); 3] =
    [("latency", Favour::Latency), ("balanced", Favour::Balanced), ("throughput", Favour::Throughput)];

const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

/// The words that stand for a setting where no table is named.
pub(super) const NAMES: [&str; 19] = [
    "policy",
    "turn_min",
    "turn_max",
    "moving_share",
    "gap_max",
    "prefetch",
    "ageing",
    "headroom",
    "overcommit_max",
    "tenants_max",
    "filler_below",
    "lc_linger",
    "lc_turn",
    "hint_lead",
    "be_guarantee",
    "favour",
    "thaw_ahead",
    "costs",
    "deadlines",
];

/// Is this the name of a setting, or of one within `costs` or `deadlines`?
pub(super) fn is_name(key: &str) -> bool {
    NAMES.contains(&key.split('.').next().unwrap_or(key))
}

pub(super) fn read(node: &Node) -> Result<Settings, Problem> {
    let mut settings = Settings::default();
    let mut from = Fields::of("[settings]", node)?;
    from.word("policy", &mut settings.policy, &POLICIES)?;
    from.span("turn_min", &mut settings.turn_min)?;
    from.span("turn_max", &mut settings.turn_max)?;
    from.part("moving_share", &mut settings.moving_share)?;
    from.span("gap_max", &mut settings.gap_max)?;
    from.word("prefetch", &mut settings.prefetch, &ON_OFF)?;
    from.span("ageing", &mut settings.ageing)?;
    from.bytes("headroom", &mut settings.headroom)?;
    from.ratio("overcommit_max", &mut settings.overcommit_max)?;
    from.count_u32("tenants_max", &mut settings.tenants_max, u32::MAX)?;
    from.part("filler_below", &mut settings.filler_below)?;
    from.span("lc_linger", &mut settings.lc_linger)?;
    from.span("lc_turn", &mut settings.lc_turn)?;
    from.span("hint_lead", &mut settings.hint_lead)?;
    from.part("be_guarantee", &mut settings.be_guarantee)?;
    from.word("favour", &mut settings.favour, &FAVOURS)?;
    from.word("thaw_ahead", &mut settings.thaw_ahead, &ON_OFF)?;
    if let Some(node) = from.take("costs") {
        settings.costs = costs(node)?;
    }
    if let Some(node) = from.take("deadlines") {
        settings.deadlines = deadlines(node)?;
    }
    not_zero(&from, "turn_max", settings.turn_max)?;
    if settings.turn_min > settings.turn_max {
        let Settings { turn_min, turn_max, .. } = settings;
        return Err(Problem::new(
            &from.place_of("turn_min"),
            format!("`turn_min` is {turn_min}, longer than `turn_max`, which is {turn_max}"),
        )
        .hint("make turn_max as long at least"));
    }
    from.finish()?;
    Ok(settings)
}

fn not_zero(from: &Fields<'_>, key: &str, length: Span) -> Result<(), Problem> {
    if length > Span::ZERO {
        return Ok(());
    }
    Err(Problem::new(&from.place_of(key), format!("`{key}` is zero, so nothing would ever get done"))
        .hint(format!("leave `{key}` out, or write {} as in {}", SPAN.name, SPAN.example)))
}

fn costs(node: &Node) -> Result<Costs, Problem> {
    let mut costs = Costs::default();
    let mut from = Fields::of("[settings.costs]", node)?;
    from.span("freeze", &mut costs.freeze)?;
    from.span("thaw", &mut costs.thaw)?;
    from.rate("out_per_second", &mut costs.out_per_second)?;
    from.rate("in_per_second", &mut costs.in_per_second)?;
    from.span("per_move", &mut costs.per_move)?;
    from.finish()?;
    Ok(costs)
}

fn deadlines(node: &Node) -> Result<Deadlines, Problem> {
    let mut deadlines = Deadlines::default();
    let mut from = Fields::of("[settings.deadlines]", node)?;
    from.span("grip", &mut deadlines.grip)?;
    from.span("movement", &mut deadlines.movement)?;
    from.span("retry", &mut deadlines.retry)?;
    not_zero(&from, "grip", deadlines.grip)?;
    from.finish()?;
    Ok(deadlines)
}

#[cfg(test)]
mod tests {
    use super::super::super::document::{parse, put};
    use super::*;

    /// A name that `read` does not know would be refused only when somebody varies it.
    #[test]
    fn every_name_can_be_set() {
        for name in NAMES.into_iter().filter(|name| !["costs", "deadlines"].contains(name)) {
            let value = match name {
                "policy" => "serial",
                "prefetch" => "off",
                "favour" => "throughput",
                "thaw_ahead" => "on",
                "headroom" => "1GiB",
                "tenants_max" => "7",
                "overcommit_max" | "moving_share" | "filler_below" | "be_guarantee" => "7%",
                _ => "7s",
            };
            let mut root = parse("").unwrap();
            put(&mut root, name, value).unwrap();
            assert!(is_name(name));
            assert_ne!(
                read(&root).unwrap_or_else(|problem| panic!("{problem:?}")),
                Settings::default(),
                "{name}"
            );
        }
        assert!(is_name("costs.freeze") && is_name("deadlines.grip"));
        assert!(!is_name("gpu.capacity") && !is_name("turn"));
    }
}
