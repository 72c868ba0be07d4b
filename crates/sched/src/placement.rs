//! Where a job goes, and why there.
//!
//! A GPU can take a tenant if it fits there alone, beside the contexts of those who are there: where it does not, it would
//! come in only to find no memory. It comes in, or waits at the door until there is a place for one more and the GPU is
//! open. Of the GPUs that can take it, or of the sets of them for a job on several, the first by this order is taken:
//! 1. where it need not wait at the door; if it has to everywhere, where the fewest wait already;
//! 2. where all that is there fits together, so that nothing has to move;
//! 3. for several GPUs: those that all reach each other without the bus; then those near the same host memory;
//! 4. where the fewest want turns, or are on their way there: for several GPUs on the busiest, since the slowest sets the
//!    pace, then on all;
//! 5. where a turn would move for the shortest time, by what is too much for the device;
//! 6. where the fewest tenants are: those that came last may want turns soon;
//! 7. the lowest numbers.
//!
//! Data in, data out: nothing is kept here. Whether the job may come in at all is decided at the door.

use crate::{Bytes, Costs, GpuId, Span};

/// All sets are compared among so many GPUs, the best ones taken alone: 12,870 sets at most.
const COMPARED_MAX: usize = 16;

/// A GPU where a job may go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    /// Which.
    pub(crate) gpu: GpuId,
    /// Capacity less reserve, headroom, contexts, what is unmanaged, and what stays on the device whoever's turn it is.
    pub(crate) usable: Bytes,
    /// All else that tenants there have, on the device and away.
    pub(crate) held: Bytes,
    /// How many there are.
    pub(crate) tenants: u32,
    /// How many were sent there and have not come yet; what they will have is counted as held.
    pub(crate) coming: u32,
    /// How many there may be.
    pub(crate) tenants_max: u32,
    /// How many of them want turns.
    pub(crate) busy: u32,
    /// The host memory it is near to.
    pub(crate) numa: u16,
    /// GPUs that it reaches without the bus. A link that either end names is one.
    pub(crate) links: Vec<GpuId>,
    /// Does it admit nobody, as the arena is nearly full?
    pub(crate) closed: bool,
    /// How many wait at its door.
    pub(crate) queued: u32,
}

/// How good a set of GPUs is, the best first: the order of the fields is the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Rank {
    waits: bool,
    queued: u32,
    overcommitted: bool,
    unlinked: bool,
    apart: bool,
    busy_most: u32,
    busy: u32,
    moving: Span,
    tenants: u32,
}

/// A set of GPUs that could be taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Choice {
    gpus: Vec<GpuId>,
    rank: Rank,
    /// What would move each turn, on the GPU where that is most.
    moved: Bytes,
    /// Is anybody on the way there?
    coming: bool,
}

/// Chooses `count` of the GPUs (of those `among`, if any are named) for tenants that will use `bytes` and a context of
/// `residue` on each. Says which, lowest first, and why those, or why none.
pub(crate) fn place(
    seats: &[Seat],
    count: u16,
    among: &[GpuId],
    bytes: Bytes,
    residue: Bytes,
    costs: &Costs,
) -> Result<(Vec<GpuId>, String), String> {
    if count == 0 {
        return Err("a job on no GPU has no place: ask for 1 or more".to_owned());
    }
    let count = usize::from(count);
    let mut able = Vec::new();
    let mut unable = Vec::new();
    for seat in seats.iter().filter(|seat| among.is_empty() || among.contains(&seat.gpu)) {
        match obstacle(seat, bytes + residue) {
            None => able.push(seat),
            Some(why) => unable.push((seat.gpu, why)),
        }
    }
    unable.extend(
        among
            .iter()
            .filter(|&&gpu| seats.iter().all(|seat| seat.gpu != gpu))
            .map(|&gpu| (gpu, format!("GPU {gpu} is not there"))),
    );
    unable.sort_unstable();
    let mut obstacles = unable.into_iter().map(|(_, why)| why);
    if able.len() < count {
        return Err(nowhere(count, able.len(), &obstacles.collect::<Vec<_>>()));
    }
    let rate = |set: &[&Seat]| rated(set, bytes + residue, costs);
    able.sort_by_key(|seat| (rate(&[*seat]).rank, seat.gpu));
    able.truncate(COMPARED_MAX.max(count));
    able.sort_by_key(|seat| seat.gpu);

    let (mut best, mut next): (Option<Choice>, Option<Choice>) = (None, None);
    each_set(&able, count, 0, &mut Vec::new(), &mut |set| {
        let choice = rate(set);
        // Sets come with the lowest numbers first, so of equals the first stays.
        if best.as_ref().is_none_or(|best| choice.rank < best.rank) {
            next = best.replace(choice);
        } else if next.as_ref().is_none_or(|next| choice.rank < next.rank) {
            next = Some(choice);
        }
    });
    let best = best.expect("enough GPUs for one set are there");
    let taken = able.iter().filter(|seat| best.gpus.contains(&seat.gpu));
    let mut why = match taken.into_iter().find_map(|seat| not_now(seat)) {
        Some(reason) => format!("{}: it has to wait, as {reason}", named(&best.gpus)),
        None => praise(&best, bytes, residue),
    };
    if let Some(other) = next.map(|next| contrast(&best, &next)).or_else(|| obstacles.next()) {
        why = format!("{why}; {other}");
    }
    Ok((best.gpus, why))
}

/// Why a GPU cannot take a tenant that needs so much.
fn obstacle(seat: &Seat, needed: Bytes) -> Option<String> {
    let Seat { gpu, usable, .. } = seat;
    (needed > *usable).then(|| format!("GPU {gpu} has {usable} for tenants, of {needed} that one needs"))
}

/// Why nobody can come in on a GPU now.
fn not_now(seat: &Seat) -> Option<String> {
    let Seat { gpu, tenants, coming, tenants_max, .. } = seat;
    if tenants + coming >= *tenants_max {
        let on_their_way = if *coming == 0 { String::new() } else { format!(" and {coming} on their way") };
        return Some(format!("GPU {gpu} has {tenants} tenants{on_their_way}, of {tenants_max} at most"));
    }
    seat.closed.then(|| format!("GPU {gpu} admits nobody now, as the arena is nearly full"))
}

fn nowhere(count: usize, able: usize, obstacles: &[String]) -> String {
    let why = if obstacles.is_empty() { "no more are there".to_owned() } else { obstacles.join("; ") };
    match able {
        0 => format!("no GPU can take it: {why}"),
        able => format!("{count} GPUs are needed and {able} can take it: {why}"),
    }
}

/// How good a set is for tenants that need so much on each.
fn rated(set: &[&Seat], needed: Bytes, costs: &Costs) -> Choice {
    let moved = set.iter().map(|seat| (seat.held + needed).less(seat.usable)).max().unwrap_or_default();
    // Out and in go on at the same time: the slower one counts.
    let moving = match moved {
        Bytes::ZERO => Span::ZERO,
        moved => moved.at(costs.out_per_second).max(moved.at(costs.in_per_second)) + costs.per_move,
    };
    let linked =
        |(one, other): (&Seat, &Seat)| one.links.contains(&other.gpu) || other.links.contains(&one.gpu);
    let waits = |seat: &&&Seat| not_now(seat).is_some();
    let rank = Rank {
        waits: set.iter().any(|seat| waits(&seat)),
        queued: set.iter().filter(waits).map(|seat| seat.queued).sum(),
        overcommitted: moved > Bytes::ZERO,
        unlinked: !pairs(set).all(linked),
        apart: !pairs(set).all(|(one, other)| one.numa == other.numa),
        // Who comes will have work.
        busy_most: set.iter().map(|seat| seat.busy + seat.coming).max().unwrap_or_default(),
        busy: set.iter().map(|seat| seat.busy + seat.coming).sum(),
        moving,
        tenants: set.iter().map(|seat| seat.tenants + seat.coming).sum(),
    };
    let coming = set.iter().any(|seat| seat.coming > 0);
    Choice { gpus: set.iter().map(|seat| seat.gpu).collect(), rank, moved, coming }
}

fn pairs<'a>(set: &'a [&'a Seat]) -> impl Iterator<Item = (&'a Seat, &'a Seat)> {
    set.iter().enumerate().flat_map(|(at, &one)| set[at + 1..].iter().map(move |&other| (one, other)))
}

/// Calls `visit` with every set of `count` seats, the lowest first.
fn each_set<'a>(
    seats: &[&'a Seat],
    count: usize,
    from: usize,
    set: &mut Vec<&'a Seat>,
    visit: &mut impl FnMut(&[&'a Seat]),
) {
    if set.len() == count {
        visit(set);
        return;
    }
    // Only where enough are left to complete the set.
    for at in from..=seats.len() - (count - set.len()) {
        set.push(seats[at]);
        each_set(seats, count, at + 1, set, visit);
        set.pop();
    }
}

/// What is good about the chosen ones.
fn praise(best: &Choice, bytes: Bytes, residue: Bytes) -> String {
    let several = best.gpus.len() > 1;
    let name = named(&best.gpus);
    let each = if several { " on each" } else { "" };
    let fit = match bytes {
        Bytes::ZERO => format!("a context of {residue}{each} fits"),
        bytes => format!("{bytes}{each} fit"),
    };
    let way = if best.coming { " or on the way" } else { "" };
    let beside = match best.rank.tenants {
        0 => String::new(),
        tenants => format!(" beside the {} there{way}", tenants_named(tenants)),
    };
    let moving = match (best.moved, best.rank.tenants) {
        (Bytes::ZERO, 0) => ", and nobody else is there".to_owned(),
        (Bytes::ZERO, _) => " without moving".to_owned(),
        (moved, _) => format!(" by moving {moved} each turn ({})", best.rank.moving),
    };
    let topology = match (several, best.rank.unlinked, best.rank.apart) {
        (false, _, _) => "",
        (true, false, false) => ", linked and on one NUMA node",
        (true, false, true) => ", linked, but not on one NUMA node",
        (true, true, false) => ", on one NUMA node, but not linked",
        (true, true, true) => ", but neither linked nor on one NUMA node",
    };
    format!("{name}: {fit}{beside}{moving}{topology}")
}

/// What is worse about the next best ones.
fn contrast(best: &Choice, next: &Choice) -> String {
    let name = named(&next.gpus);
    let (ours, theirs) = (best.rank, next.rank);
    let would_move = || format!("{name} would have to move {} each turn", next.moved);
    if theirs.waits != ours.waits {
        format!("on {name} it would have to wait")
    } else if theirs.queued != ours.queued {
        format!(
            "on {name} {} already",
            if theirs.queued == 1 { "1 waits".to_owned() } else { format!("{} wait", theirs.queued) }
        )
    } else if theirs.overcommitted != ours.overcommitted {
        would_move()
    } else if theirs.unlinked != ours.unlinked {
        format!("{name} are not linked")
    } else if theirs.apart != ours.apart {
        format!("{name} are not on one NUMA node")
    } else if (theirs.busy_most, theirs.busy) != (ours.busy_most, ours.busy) {
        let way = if next.coming { ", or will" } else { "" };
        let wanting = if theirs.busy == 1 { "wants turns" } else { "want turns" };
        format!("on {name} {} {wanting}{way}", tenants_named(theirs.busy))
    } else if theirs.moving != ours.moving {
        would_move()
    } else if theirs.tenants != ours.tenants {
        let way = if next.coming { " or on the way" } else { "" };
        format!("on {name} there are {}{way}", tenants_named(theirs.tenants))
    } else {
        format!("{name} would do as well")
    }
}

fn named(gpus: &[GpuId]) -> String {
    match gpus {
        [] => "no GPU".to_owned(),
        [one] => format!("GPU {one}"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(GpuId::to_string).collect();
            format!("GPUs {} and {last}", rest.join(", "))
        }
    }
}

fn tenants_named(tenants: u32) -> String {
    if tenants == 1 { "1 tenant".to_owned() } else { format!("{tenants} tenants") }
}

#[cfg(test)]
mod tests;
