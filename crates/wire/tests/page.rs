//! The bytes of the shared page, fixed. Whoever breaks one of these tests changes what a running daemon and an older shim
//! say to each other, and raises `VERSION` in the same change.

use rota_wire::{IDLE_SINCE_OFFSET, SharedPage, Times, monotonic_ns};

#[test]
fn the_page_keeps_its_offsets() {
    let page = SharedPage::create(0x1122_3344_5566_7788).unwrap();
    let word = |offset: u64| {
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::pread(page.file(), &mut bytes[..], offset).unwrap(), 8);
        u64::from_le_bytes(bytes)
    };
    assert_eq!(rustix::fs::fstat(page.file()).unwrap().st_size, 4096);
    assert_eq!(word(0).to_le_bytes(), *b"rotapage");
    assert_eq!(word(8), 11, "version");
    assert_eq!(word(16), 0x1122_3344_5566_7788, "epoch");
    assert_eq!(word(24), 0, "freeze generation: even, not frozen");
    assert_eq!(word(32), 1, "residency commit: nothing is away");
    assert_eq!(word(40), 0, "slice: never changed");
    assert_eq!(word(48), 0, "channel generation");

    page.set_frozen(true);
    assert_eq!(word(24), 1);
    page.set_frozen(false);
    assert_eq!(word(24), 2);
    page.revoke_residency();
    assert_eq!(word(32), 0);
    page.commit_residency(9);
    assert_eq!(word(32), 9);
    page.set_slice_us(2048);
    assert_eq!(word(40), 2048);
    page.raise_channel_generation();
    page.raise_channel_generation();
    assert_eq!(word(48), 2);
    assert!((56..4096).step_by(8).all(|offset| word(offset) == 0), "not watched, and with work");
    assert!(page.rest(7));
    assert_eq!((word(128), word(136)), (7, 0), "idle since, idle in all");
    assert_eq!(IDLE_SINCE_OFFSET, 128);
    assert!(page.is_idle_when_watched());
    assert_eq!(word(56), 1, "watched");
    assert!(page.wake(10));
    assert_eq!((word(56), word(128), word(136)), (0, 0, 3));
    page.set_memory(11, 12, 13);
    page.set_used_bytes(14);
    page.set_unseen_bytes(15);
    assert_eq!(
        [64, 72, 80, 152, 160].map(word),
        [11, 12, 13, 14, 15],
        "limit, others, residue, used, unseen"
    );
    page.set_class(true, Some(16));
    page.await_end(true);
    assert_eq!([88, 96, 104].map(word), [1, 16, 1], "latency-critical, SLO, the end is awaited");
    page.set_requests_open(17);
    page.set_phases_open(18);
    page.set_unforecast(true);
    page.count_dropped_hint();
    let before = monotonic_ns();
    page.count_warm_up(true);
    page.count_warm_up(true);
    let warmed = before..=monotonic_ns();
    page.count_warm_up(false);
    assert!(warmed.contains(&word(3472)), "when the last warm-up was launched");
    assert_eq!(
        [168, 176, 184, 192, 200, 208].map(word),
        [17, 18, 1, 1, 2, 1],
        "requests, phases, not forecast, hints dropped, warm-ups, warm-ups that failed"
    );
    page.note_freeze();
    page.note_freeze();
    page.note_frozen_wholly();
    assert_eq!([3480, 3488].map(word), [2, 1], "freezes, frozen wholly");
    page.order_warm_up();
    page.order_warm_up_at(19);
    page.await_warm_ups();
    page.count_awaited_warm_up();
    assert_eq!(
        [3496, 3504, 3512, 3520, 3528].map(word),
        [2, 0, 1, 1, 19],
        "warm-ups ordered, expected, awaits, awaited, due"
    );
    let before = monotonic_ns();
    page.expect_warm_up();
    assert!((before..=monotonic_ns()).contains(&(word(3504) - 1_500_000)), "until when one is expected");
    page.tell_requests();
    page.set_phase_name(b"checkpoint");
    page.add_request(130, Some(129));
    page.add_request(1 << 20, None);
    assert_eq!(word(216), 1, "requests are told");
    assert_eq!(
        [224, 232, 240].map(|offset| word(offset).to_le_bytes()),
        [*b"checkpoi", *b"nt\0\0\0\0\0\0", [0; 8]],
        "the phase"
    );
    assert_eq!([256, 264].map(word), [1 << 20, 1], "the longest request, missed SLOs");
    let bucket = |index: u64| word(272 + 4 * index / 8 * 8) >> (32 * (index % 2)) as u32;
    assert_eq!((bucket(1), bucket(288)), (1, 1), "one of 128 ns, one of a millisecond");
    let known = [
        56, 64, 72, 80, 88, 96, 104, 128, 136, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 256,
        264, 272, 1424, 3472, 3480, 3488, 3496, 3504, 3512, 3520, 3528,
    ];
    let mut rest = (56..4096).step_by(8).filter(|offset| !known.contains(offset));
    assert!(rest.all(|offset| word(offset) == 0), "a field beyond the documented ones");
}

#[test]
fn a_page_written_by_the_book_is_read() {
    let page = SharedPage::create(1).unwrap();
    let write = |offset: u64, value: u64| {
        assert_eq!(rustix::io::pwrite(page.file(), &value.to_le_bytes(), offset).unwrap(), 8);
    };
    for (offset, value) in [
        (16, 5),
        (24, 3),
        (32, 0),
        (40, 77),
        (48, 12),
        (64, 8),
        (72, 9),
        (80, 10),
        (128, 4),
        (136, 6),
        (144, 1),
        (152, 11),
        (160, 13),
        (88, 1),
        (96, 14),
        (104, 1),
        (168, 15),
        (176, 16),
        (184, 1),
        (192, 17),
        (200, 18),
        (208, 19),
        (216, 1),
        (224, u64::from_le_bytes(*b"tidying\0")),
        (256, 20_000),
        (264, 21),
        (272, 1 << 32 | 2),
        (3472, 22),
        (3480, 3),
        (3488, 1),
        (3496, 23),
        (3504, 2_000_000),
        (3512, 1),
        (3520, 24),
        (3528, 3_000_000),
    ] {
        write(offset, value);
    }
    let tenant = SharedPage::open(page.file().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(tenant.epoch(), 5);
    assert!(tenant.frozen() && !tenant.resident());
    assert_eq!(tenant.slice_us(), Some(77));
    assert_eq!(tenant.channel_generation(), 12);
    assert_eq!((tenant.idle_since_ns(), tenant.idle_total_ns(9)), (Some(4), 11));
    assert_eq!((tenant.limit_bytes(), tenant.others_bytes()), (8, 9));
    assert_eq!((tenant.residue_bytes(), tenant.used_bytes(), tenant.unseen_bytes()), (10, 11, 13));
    assert!(tenant.holds_launches());
    assert_eq!((tenant.critical(), tenant.slo_ns(), tenant.requests_open()), (true, Some(14), 15));
    assert!(tenant.gives_way() && !tenant.may_be_forecast() && tenant.end_is_awaited());
    assert_eq!((tenant.hints_dropped(), tenant.warm_ups(), tenant.warmed_ns()), (17, (18, 19), Some(22)));
    assert_eq!((tenant.warm_ups_ordered(), tenant.warm_ups_awaited()), (23, 24));
    assert!(tenant.awaits_warm_ups());
    let expected = [499_999, 500_000, 1_999_999, 2_000_000].map(|now| tenant.warm_up_is_expected(now));
    assert_eq!(expected, [false, true, true, false]);
    let due_in = [1_499_999, 1_500_000, 2_999_999, 3_000_000].map(|now| tenant.warm_up_is_due_in(now));
    assert_eq!(due_in, [None, Some(1_500_000), Some(1), None]);
    assert!(tenant.frozen_wholly());
    assert_eq!((tenant.freezes(), tenant.begin_thaw()), (3, 3));
    assert!(!tenant.frozen_wholly());
    tenant.end_thaw(3);
    assert_eq!((tenant.freezes(), tenant.begin_thaw()), (0, 1), "once at least, also if nobody counted");
    let requests = tenant.request_times().unwrap();
    assert_eq!((requests.by_program, requests.slo_missed), (true, 21));
    assert_eq!(requests.times, Times { count: 3, p50_ns: 64, p99_ns: 192, p999_ns: 192, max_ns: 20_000 });
    assert_eq!(tenant.phase_name().as_deref(), Some("tidying"));
    drop(tenant);
    write(8, 1);
    assert!(SharedPage::open(page.file().try_clone_to_owned().unwrap()).is_err(), "another version");
}
