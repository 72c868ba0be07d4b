use super::*;

const RESIDUE: Bytes = Bytes(1 << 29);

/// A GPU of 16 GiB with nobody on it, changed by `change`.
fn seat(gpu: u16, change: impl FnOnce(&mut Seat)) -> Seat {
    let mut seat = Seat {
        gpu: GpuId(gpu),
        usable: Bytes::from_gib(16),
        held: Bytes::ZERO,
        tenants: 0,
        coming: 0,
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
        takes(&[0], "GPU 0: 12.00 GiB fit beside the 1 tenant there by moving 0.25 GiB each turn (1.50 s)")
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
    let (_, why) = place(&[with(0, 1, 0, 14)], 1, &[], Bytes::from_gib(12), RESIDUE, &costs).expect("placed");
    assert_eq!(why, "GPU 0: 12.00 GiB fit beside the 1 tenant there by moving 10.50 GiB each turn (43.00 s)");
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
    assert_eq!(goes(&[seat(0, |_| ())], 0, 1), declines("a job on no GPU has no place: ask for 1 or more"));
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

#[test]
fn those_on_the_way_count_as_there_and_as_busy() {
    let coming = |gpu, coming| seat(gpu, |seat| seat.coming = coming);
    assert_eq!(
        goes(&[coming(0, 2), coming(1, 1)], 1, 0),
        takes(
            &[1],
            "GPU 1: a context of 0.50 GiB fits beside the 1 tenant there or on the way without moving; on GPU 0 2 tenants \
             want turns, or will"
        )
    );
    let full = seat(0, |seat| (seat.tenants, seat.coming) = (5, 3));
    let (gpus, why) = goes(&[full], 1, 0).unwrap();
    assert_eq!(gpus, [0]);
    assert!(why.contains("GPU 0 has 5 tenants and 3 on their way, of 8 at most"), "{why}");
}
