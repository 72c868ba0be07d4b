//! `[gpu]` and `[[gpu]]`. What is left out is as on an H200.

use super::super::document::{Node, Problem};
use super::super::fields::Fields;
use super::super::quantity::SPAN;
use super::super::{Gpu, Physics};
use sched::{Bytes, Ratio, Span};

/// A GPU and how many of its kind there are.
pub(super) fn read(node: &Node, count_max: usize) -> Result<(Gpu, usize), Problem> {
    let mut from = Fields::of("[gpu]", node)?;
    let mut gpu = Gpu {
        capacity: Bytes::ZERO,
        reserve: Bytes::from_mib(600),
        residue: Bytes::from_mib(518),
        out_per_second: 55_200_000_000,
        in_per_second: 54_400_000_000,
        both_per_second: 46_000_000_000,
        physics: Physics::default(),
    };
    from.need("capacity", "\"16GiB\"")?;
    from.bytes("capacity", &mut gpu.capacity)?;
    from.bytes("reserve", &mut gpu.reserve)?;
    from.bytes("residue", &mut gpu.residue)?;
    from.rate("out", &mut gpu.out_per_second)?;
    from.rate("in", &mut gpu.in_per_second)?;
    from.rate("both", &mut gpu.both_per_second)?;
    if let Some(node) = from.take("physics") {
        gpu.physics = physics(node)?;
    }
    let mut count = 1;
    from.count("count", &mut count, count_max as u64)?;
    if gpu.capacity <= gpu.reserve + gpu.residue {
        let Gpu { capacity, reserve, residue, .. } = &gpu;
        return Err(Problem::new(
            &from.place_of("capacity"),
            format!(
                "a GPU of {capacity} has no room beside the mover's {reserve} and a context of {residue}"
            ),
        )
        .hint("make `capacity` larger, or `reserve` and `residue` smaller"));
    }
    from.finish()?;
    Ok((gpu, count as usize))
}

/// All of it by name, so that nothing that is added there is forgotten here.
fn physics(node: &Node) -> Result<Physics, Problem> {
    let mut physics = Physics::default();
    let Physics {
        switch,
        switch_save,
        switch_load,
        freeze_compute,
        freeze_all,
        thaw,
        grip_effect,
        jitter,
        doze,
        wake,
        wake_spread,
        wake_slow,
        warm_up,
        per_move,
        slice_own,
        slice_long,
        slice_shortest,
        slice_critical,
        slice_guaranteed,
        fault,
    } = &mut physics;
    let mut from = Fields::of("[gpu.physics]", node)?;
    for (key, span) in [
        ("switch", switch),
        ("freeze_compute", freeze_compute),
        ("freeze_all", freeze_all),
        ("thaw", thaw),
        ("doze", doze),
        ("wake", wake),
        ("wake_spread", wake_spread),
        ("warm_up", warm_up),
        ("per_move", per_move),
        ("fault", fault),
    ] {
        from.span(key, span)?;
    }
    for (key, share) in [
        ("switch_save", switch_save),
        ("switch_load", switch_load),
        ("grip_effect", grip_effect),
        ("jitter", jitter),
        ("wake_slow", wake_slow),
    ] {
        from.part(key, share)?;
    }
    for (key, slice) in [
        ("slice_own", slice_own),
        ("slice_long", slice_long),
        ("slice_shortest", slice_shortest),
        ("slice_critical", slice_critical),
        ("slice_guaranteed", slice_guaranteed),
    ] {
        from.span(key, slice)?;
        if *slice == Span::ZERO {
            return Err(Problem::new(
                &from.place_of(key),
                format!("`{key}` is zero, so nobody would compute"),
            )
            .hint(format!("leave `{key}` out, or write {} as in {}", SPAN.name, SPAN.example)));
        }
    }
    if physics.switch_save.0 + physics.switch_load.0 > Ratio::ONE.0 {
        return Err(Problem::new(
            from.place(),
            "`switch_save` and `switch_load` together are more than a whole switch",
        )
        .hint("together they are at most \"100%\""));
    }
    from.finish()?;
    Ok(physics)
}
