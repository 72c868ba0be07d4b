//! Where a job goes, and why there.
//!
//! A GPU can take a tenant if it fits there alone, beside the contexts of those who are there: where it does not, it would
//! come in only to find no memory. It comes in, or waits at the door until there is a place for one more and the GPU is
//! open. Of the GPUs that can take it, or of the sets of them for a job on several, the first by this order is taken:
//! 1. where it need not wait at the door; if it has to everywhere, where the fewest wait already;
//! 2. where all that is there fits together, so that nothing has to move;
//! 3. for several GPUs: those that all reach each other without the bus; then those near the same host memory;
//! 4. where the fewest want turns: for several GPUs on the busiest, since the slowest sets the pace, then on all;
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
    /// Capacity less reserve, headroom, contexts and what is unmanaged.
    pub(crate) usable: Bytes,
    /// All that tenants there have, on the device and away.
    pub(crate) held: Bytes,
    /// How many there are.
    pub(crate) tenants: u32,
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
    let Seat { gpu, tenants, tenants_max, .. } = seat;
    if tenants >= tenants_max {
        return Some(format!("GPU {gpu} has {tenants} tenants, of {tenants_max} at most"));
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
        busy_most: set.iter().map(|seat| seat.busy).max().unwrap_or_default(),
        busy: set.iter().map(|seat| seat.busy).sum(),
        moving,
        tenants: set.iter().map(|seat| seat.tenants).sum(),
    };
    Choice { gpus: set.iter().map(|seat| seat.gpu).collect(), rank, moved }
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
    let beside = match best.rank.tenants {
        0 => String::new(),
        tenants => format!(" beside the {} there", tenants_named(tenants)),
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
        let wanting = if theirs.busy == 1 { "wants turns" } else { "want turns" };
        format!("on {name} {} {wanting}", tenants_named(theirs.busy))
    } else if theirs.moving != ours.moving {
        would_move()
    } else if theirs.tenants != ours.tenants {
        format!("on {name} there are {}", tenants_named(theirs.tenants))
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
mod tests {
    use super::*;

    const RESIDUE: Bytes = Bytes(1 << 29);

    /// A GPU of 16 GiB with nobody on it, changed by `change`.
    fn seat(gpu: u16, change: impl FnOnce(&mut Seat)) -> Seat {
        let mut seat = Seat {
            gpu: GpuId(gpu),
            usable: Bytes::from_gib(16),
            held: Bytes::ZERO,
            tenants: 0,
            tenants_max: 8,
            busy: 0,
            numa: 0,
            links: Vec::new(),
            closed: false,
            queued: 0,
        };
        change(&mut seat);
        seat
    }

    /// `tenants` there, of which `busy` want turns, with `held` GiB.
    fn with(gpu: u16, tenants: u32, busy: u32, held: u64) -> Seat {
        seat(gpu, |seat| {
            seat.tenants = tenants;
            seat.busy = busy;
            seat.held = Bytes::from_gib(held);
        })
    }

    /// Costs that make 1 GiB take a second out, and two in.
    fn costs() -> Costs {
        Costs {
            out_per_second: 1 << 30,
            in_per_second: 1 << 29,
            per_move: Span::from_secs(1),
            ..Costs::default()
        }
    }

    fn goes(seats: &[Seat], count: u16, gib: u64) -> Result<(Vec<u16>, String), String> {
        among(seats, count, &[], gib)
    }

    fn among(seats: &[Seat], count: u16, among: &[u16], gib: u64) -> Result<(Vec<u16>, String), String> {
        let among: Vec<GpuId> = among.iter().copied().map(GpuId).collect();
        place(seats, count, &among, Bytes::from_gib(gib), RESIDUE, &costs())
            .map(|(gpus, why)| (gpus.into_iter().map(|gpu| gpu.0).collect(), why))
    }

    fn takes(gpus: &[u16], why: &str) -> Result<(Vec<u16>, String), String> {
        Ok((gpus.to_vec(), why.to_owned()))
    }

    fn declines(why: &str) -> Result<(Vec<u16>, String), String> {
        Err(why.to_owned())
    }

    #[test]
    fn the_one_that_need_not_move_is_taken_even_if_it_is_busier() {
        assert_eq!(
            goes(&[with(0, 1, 0, 12), with(1, 2, 2, 3)], 1, 12),
            takes(
                &[1],
                "GPU 1: 12.00 GiB fit beside the 2 tenants there without moving; GPU 0 would have to move 8.50 GiB each \
                 turn"
            )
        );
    }

    #[test]
    fn what_just_fits_together_need_not_move() {
        let exact = seat(0, |seat| {
            seat.tenants = 1;
            seat.held = Bytes(Bytes::from_gib(4).0 - RESIDUE.0);
        });
        assert_eq!(
            goes(std::slice::from_ref(&exact), 1, 12),
            takes(&[0], "GPU 0: 12.00 GiB fit beside the 1 tenant there without moving")
        );
        let over = seat(0, |seat| {
            seat.tenants = 1;
            seat.held = exact.held + Bytes(1 << 28);
        });
        assert_eq!(
            goes(&[over], 1, 12),
            takes(
                &[0],
                "GPU 0: 12.00 GiB fit beside the 1 tenant there by moving 0.25 GiB each turn (1.50 s)"
            )
        );
    }

    #[test]
    fn one_tenant_must_fit_alone_with_its_context() {
        let exact = seat(0, |seat| seat.usable = Bytes::from_gib(12) + RESIDUE);
        assert_eq!(goes(&[exact], 1, 12), takes(&[0], "GPU 0: 12.00 GiB fit, and nobody else is there"));
        let less = seat(0, |seat| seat.usable = (Bytes::from_gib(12) + RESIDUE).less(Bytes(1)));
        assert_eq!(
            goes(&[less], 1, 12),
            declines("no GPU can take it: GPU 0 has 12.50 GiB for tenants, of 12.50 GiB that one needs")
        );
    }

    #[test]
    fn where_it_would_have_to_wait_it_goes_only_if_it_has_to_everywhere() {
        let full = seat(0, |seat| (seat.tenants, seat.queued) = (8, 2));
        let closed = seat(1, |seat| (seat.closed, seat.queued) = (true, 1));
        let crowded = seat(2, |seat| (seat.tenants, seat.queued) = (9, 3));
        assert_eq!(
            goes(&[full.clone(), closed.clone(), crowded.clone()], 1, 1),
            takes(
                &[1],
                "GPU 1: it has to wait, as GPU 1 admits nobody now, as the arena is nearly full; on GPU 0 2 wait already"
            )
        );
        assert_eq!(
            goes(&[full.clone(), crowded.clone()], 1, 1).expect("it waits").1,
            "GPU 0: it has to wait, as GPU 0 has 8 tenants, of 8 at most; on GPU 2 3 wait already"
        );
        assert_eq!(
            goes(std::slice::from_ref(&crowded), 1, 1).expect("it waits").1,
            "GPU 2: it has to wait, as GPU 2 has 9 tenants, of 8 at most"
        );
        let last_place = with(3, 7, 0, 0);
        assert_eq!(
            goes(&[full.clone(), closed, crowded, last_place.clone()], 1, 1),
            takes(
                &[3],
                "GPU 3: 1.00 GiB fit beside the 7 tenants there without moving; on GPU 1 it would have to wait"
            )
        );
        assert_eq!(
            goes(&[full.clone(), last_place], 2, 1).expect("it waits").1,
            "GPUs 0 and 3: it has to wait, as GPU 0 has 8 tenants, of 8 at most"
        );
        // What can never fit waits for nothing.
        let small = seat(4, |seat| seat.usable = Bytes::from_gib(1));
        assert_eq!(
            goes(&[small.clone(), full], 1, 1).expect("it waits").1,
            "GPU 0: it has to wait, as GPU 0 has 8 tenants, of 8 at most; GPU 4 has 1.00 GiB for tenants, of 1.50 \
             GiB that one needs"
        );
        assert_eq!(
            goes(&[small], 1, 1),
            declines("no GPU can take it: GPU 4 has 1.00 GiB for tenants, of 1.50 GiB that one needs")
        );
    }

    #[test]
    fn the_least_busy_is_taken() {
        assert_eq!(
            goes(&[with(0, 3, 3, 3), with(1, 4, 1, 3)], 1, 1),
            takes(
                &[1],
                "GPU 1: 1.00 GiB fit beside the 4 tenants there without moving; on GPU 0 3 tenants want turns"
            )
        );
        assert_eq!(
            goes(&[with(0, 1, 1, 1), with(1, 1, 0, 1)], 1, 1).expect("placed").1,
            "GPU 1: 1.00 GiB fit beside the 1 tenant there without moving; on GPU 0 1 tenant wants turns"
        );
    }

    #[test]
    fn if_all_have_to_move_the_least_busy_comes_before_the_one_that_moves_least() {
        assert_eq!(
            goes(&[with(0, 2, 2, 14), with(1, 2, 1, 20)], 1, 12),
            takes(
                &[1],
                "GPU 1: 12.00 GiB fit beside the 2 tenants there by moving 16.50 GiB each turn (34.00 s); on GPU 0 2 \
                 tenants want turns"
            )
        );
        assert_eq!(
            goes(&[with(0, 2, 1, 20), with(1, 2, 1, 14)], 1, 12),
            takes(
                &[1],
                "GPU 1: 12.00 GiB fit beside the 2 tenants there by moving 10.50 GiB each turn (22.00 s); GPU 0 would \
                 have to move 16.50 GiB each turn"
            )
        );
    }

    #[test]
    fn the_slower_way_of_the_bus_counts() {
        let mut costs = costs();
        (costs.out_per_second, costs.in_per_second) = (1 << 28, 1 << 30);
        let (_, why) =
            place(&[with(0, 1, 0, 14)], 1, &[], Bytes::from_gib(12), RESIDUE, &costs).expect("placed");
        assert_eq!(
            why,
            "GPU 0: 12.00 GiB fit beside the 1 tenant there by moving 10.50 GiB each turn (43.00 s)"
        );
    }

    #[test]
    fn among_equals_the_emptier_and_then_the_lowest_is_taken() {
        assert_eq!(
            goes(&[with(0, 2, 0, 2), with(1, 1, 0, 2)], 1, 1),
            takes(
                &[1],
                "GPU 1: 1.00 GiB fit beside the 1 tenant there without moving; on GPU 0 there are 2 tenants"
            )
        );
        assert_eq!(
            goes(&[seat(5, |_| ()), seat(3, |_| ()), seat(4, |_| ())], 1, 1),
            takes(&[3], "GPU 3: 1.00 GiB fit, and nobody else is there; GPU 4 would do as well")
        );
    }

    #[test]
    fn only_those_named_are_taken() {
        let seats = [seat(0, |_| ()), with(1, 3, 3, 3), with(2, 4, 4, 3)];
        assert_eq!(
            among(&seats, 1, &[2, 1], 1),
            takes(
                &[1],
                "GPU 1: 1.00 GiB fit beside the 3 tenants there without moving; on GPU 2 4 tenants want turns"
            )
        );
        assert_eq!(
            among(&seats, 2, &[9, 1, 7], 1),
            declines("2 GPUs are needed and 1 can take it: GPU 7 is not there; GPU 9 is not there")
        );
        assert_eq!(among(&seats, 1, &[9], 1), declines("no GPU can take it: GPU 9 is not there"));
    }

    #[test]
    fn too_few_gpus_and_no_gpu_say_so() {
        assert_eq!(goes(&[], 1, 1), declines("no GPU can take it: no more are there"));
        assert_eq!(
            goes(&[seat(0, |_| ())], 2, 1),
            declines("2 GPUs are needed and 1 can take it: no more are there")
        );
        assert_eq!(
            goes(&[seat(0, |_| ())], 0, 1),
            declines("a job on no GPU has no place: ask for 1 or more")
        );
    }

    #[test]
    fn a_job_that_says_no_size_has_a_context_all_the_same() {
        assert_eq!(
            goes(&[seat(0, |_| ())], 1, 0),
            takes(&[0], "GPU 0: a context of 0.50 GiB fits, and nobody else is there")
        );
        assert_eq!(
            goes(&[seat(0, |_| ()), seat(1, |_| ())], 2, 0),
            takes(
                &[0, 1],
                "GPUs 0 and 1: a context of 0.50 GiB on each fits, and nobody else is there, on one NUMA node, but not \
                 linked"
            )
        );
    }

    /// Four GPUs, two on each NUMA node; 0 and 2, 1 and 3 are linked, each named by one end only.
    fn square() -> [Seat; 4] {
        [
            seat(0, |seat| seat.links = vec![GpuId(2)]),
            seat(1, |_| ()),
            seat(2, |seat| seat.numa = 1),
            seat(3, |seat| {
                seat.numa = 1;
                seat.links = vec![GpuId(1)];
            }),
        ]
    }

    #[test]
    fn linked_sets_come_before_those_on_one_node_and_those_before_others() {
        assert_eq!(
            goes(&square(), 2, 1),
            takes(
                &[0, 2],
                "GPUs 0 and 2: 1.00 GiB on each fit, and nobody else is there, linked, but not on one NUMA node; GPUs 1 \
                 and 3 would do as well"
            )
        );
        // Busy on 0: the other link is taken, busy or not the links count more than the node.
        let mut seats = square();
        seats[0].busy = 1;
        assert_eq!(goes(&seats, 2, 1).expect("placed").0, [1, 3]);
        seats[1].busy = 1;
        seats[2].busy = 1;
        assert_eq!(goes(&seats, 2, 1).expect("placed").0, [1, 3]);
        let mut seats = square();
        seats[0].links.clear();
        seats[3].links.clear();
        seats[0].busy = 1;
        assert_eq!(
            goes(&seats, 2, 1),
            takes(
                &[2, 3],
                "GPUs 2 and 3: 1.00 GiB on each fit, and nobody else is there, on one NUMA node, but not linked; on \
                 GPUs 0 and 1 1 tenant wants turns"
            )
        );
        assert_eq!(
            among(&seats, 2, &[0, 1, 2], 1).expect("placed").1,
            "GPUs 0 and 1: 1.00 GiB on each fit, and nobody else is there, on one NUMA node, but not linked; GPUs 1 and 2 \
             are not on one NUMA node"
        );
        assert_eq!(
            among(&seats, 2, &[0, 2], 1),
            takes(
                &[0, 2],
                "GPUs 0 and 2: 1.00 GiB on each fit, and nobody else is there, but neither linked nor on one NUMA node"
            )
        );
    }

    #[test]
    fn linked_on_one_node_is_best_unless_it_has_to_move() {
        let mut seats = square();
        seats[3].links.push(GpuId(2));
        assert_eq!(
            goes(&seats, 2, 12),
            takes(
                &[2, 3],
                "GPUs 2 and 3: 12.00 GiB on each fit, and nobody else is there, linked and on one NUMA node; GPUs 0 and 2 \
                 are not on one NUMA node"
            )
        );
        seats[3].held = Bytes::from_gib(4);
        assert_eq!(goes(&seats, 2, 12).expect("placed").0, [0, 2]);
        seats[0].links.clear();
        assert_eq!(goes(&seats, 2, 12).expect("placed").0, [0, 1], "moving costs more than a missing link");
        seats[0].closed = true;
        assert_eq!(
            among(&seats, 2, &[0, 2, 3], 12).expect("placed").1,
            "GPUs 2 and 3: 12.00 GiB on each fit by moving 0.50 GiB each turn (2.00 s), linked \
             and on one NUMA node; on GPUs 0 and 2 it would have to wait"
        );
    }

    #[test]
    fn a_set_is_linked_only_if_all_its_pairs_are() {
        // A chain 0-1-2 and a triangle 3-4-5.
        let links: [&[u16]; 6] = [&[1], &[2], &[], &[4, 5], &[5], &[]];
        let seats: Vec<Seat> = (0..6)
            .map(|gpu| {
                seat(gpu, |seat| seat.links = links[usize::from(gpu)].iter().copied().map(GpuId).collect())
            })
            .collect();
        assert_eq!(
            goes(&seats, 3, 1),
            takes(
                &[3, 4, 5],
                "GPUs 3, 4 and 5: 1.00 GiB on each fit, and nobody else is there, linked and on one NUMA node; GPUs 0, 1 \
                 and 2 are not linked"
            )
        );
    }

    #[test]
    fn the_busiest_of_a_set_counts_before_the_sum() {
        let seats = [with(0, 3, 3, 1), with(1, 0, 0, 1), with(2, 2, 2, 1), with(3, 2, 2, 1)];
        assert_eq!(goes(&seats, 2, 1).expect("placed").0, [1, 2]);
        assert_eq!(among(&seats, 2, &[0, 2, 3], 1).expect("placed").0, [2, 3], "2 and 2 come before 3 and 2");
        // Of the two links: 3 and none, or 2 and 2.
        let mut linked = seats.clone();
        linked[0].links.push(GpuId(1));
        linked[2].links.push(GpuId(3));
        assert_eq!(goes(&linked, 2, 1).expect("placed").0, [2, 3]);
        assert_eq!(
            among(&seats, 3, &[], 1).expect("placed").1,
            "GPUs 1, 2 and 3: 1.00 GiB on each fit beside the 4 tenants there without moving, on one NUMA node, but not \
             linked; on GPUs 0, 1 and 2 5 tenants want turns"
        );
    }

    #[test]
    fn many_gpus_are_compared_in_bounded_time() {
        // The best 16 are the last ones; the best pair of them is the only one that is linked.
        let mut seats: Vec<Seat> =
            (0..64).map(|gpu| with(gpu, u32::from(gpu < 48), u32::from(gpu < 48), 1)).collect();
        seats[50].links.push(GpuId(60));
        seats[0].links.push(GpuId(1));
        assert_eq!(goes(&seats, 2, 1).expect("placed").0, [50, 60]);
        assert_eq!(goes(&seats, 8, 1).expect("placed").0, (48..56).collect::<Vec<_>>());
        assert_eq!(goes(&seats, 64, 1).expect("placed").0, (0..64).collect::<Vec<_>>());
        assert_eq!(goes(&seats, 40, 1).expect("placed").0.len(), 40);
        assert_eq!(goes(&seats, 65, 1), declines("65 GPUs are needed and 64 can take it: no more are there"));
    }
}
