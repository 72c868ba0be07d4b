use super::*;

const LEAD: Span = Span::from_micros(900);

fn us(micros: u64) -> Time {
    Time(micros * 1_000)
}

fn span(micros: u64) -> Span {
    Span::from_micros(micros)
}

/// At `at`, a hint for 5 ms later, which a request follows that is off by `error` us. Returns the plan.
fn hinted(hints: &mut Hints, at: u64, error: i64) -> Plan {
    let plan = hints.plan(us(at), span(5_000), LEAD).expect("trusted").expect("new");
    hints.came(us((at + 5_000).saturating_add_signed(error)), true);
    plan
}

/// At `at`, a hint for 1 ms later that nothing follows.
fn lie(hints: &mut Hints, at: u64) -> Result<(), Missed> {
    let plan = hints.plan(us(at), span(1_000), LEAD)?.expect("new");
    hints.expired(plan.until, plan.expect);
    Ok(())
}

/// So many of them, from `at` on, 2 ms apart.
fn lies(hints: &mut Hints, at: u64, many: u64) {
    for each in 0..many {
        lie(hints, at + each * 2_000).expect("still trusted");
    }
}

fn refused(hints: &Hints, now: Time) -> bool {
    hints.clone().plan(now, span(1_000), LEAD) == Err(Missed::Distrusted)
}

#[test]
fn the_first_hint_is_taken_at_its_word() {
    let mut hints = Hints::default();
    let plan = hints.plan(us(10_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert_eq!(plan, Plan { freeze_at: us(14_100), expect: us(15_000), until: us(16_000) });
    assert_eq!(hints.pending.len(), 1);
    assert_eq!(hints.came(us(15_000), true), Some(Came::Good));
    assert!(hints.pending.is_empty());
    assert_eq!(hints.counts(), HintCounts { good: 1, ..HintCounts::default() });
}

#[test]
fn a_hint_that_leaves_too_little_time_acts_now() {
    let mut hints = Hints::default();
    let plan = hints.plan(us(10_000), span(899), LEAD).expect("trusted").expect("new");
    assert_eq!(plan, Plan { freeze_at: us(10_000), expect: us(10_899), until: us(11_899) });
    let mut hints = Hints::default();
    let plan = hints.plan(us(10_000), span(901), LEAD).expect("trusted").expect("new");
    assert_eq!(plan.freeze_at, us(10_001));
}

#[test]
fn the_first_error_moves_the_averages_by_an_eighth_and_a_quarter() {
    let mut hints = Hints::default();
    hinted(&mut hints, 10_000, 800);
    assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
    // 900 less than the bias: a deviation of 1,000 us from it.
    hinted(&mut hints, 20_000, -900);
    assert_eq!((hints.bias, hints.deviation), (-25_000, 400_000));
    let plan = hints.plan(us(30_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert_eq!(plan.expect, us(34_975));
    assert_eq!(plan.freeze_at, us(34_975 - 900 - 800));
    assert_eq!(plan.until, us(34_975 + 1_600));
}

#[test]
fn requests_that_always_come_later_are_expected_later() {
    let mut hints = Hints::default();
    for round in 0..100 {
        hinted(&mut hints, 10_000 * (round + 1), 1_000);
    }
    let plan = hints.plan(us(2_000_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert!(plan.expect.since(us(2_006_000)) == Span::ZERO && us(2_006_000).since(plan.expect) < Span(8));
    let margin = plan.expect.since(plan.freeze_at);
    assert!(margin >= LEAD && margin < LEAD + Span(100), "{margin}");
    assert_eq!(hints.counts().good + hints.counts().late, 100);
    assert_eq!(hints.counts().false_, 0);
}

#[test]
fn requests_that_always_come_earlier_are_expected_earlier() {
    let mut hints = Hints::default();
    for round in 0..100 {
        hinted(&mut hints, 10_000 * (round + 1), -1_000);
    }
    let plan = hints.plan(us(2_000_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert!(plan.expect.since(us(2_004_000)) < Span(8) && us(2_004_000).since(plan.expect) == Span::ZERO);
    // The bias never makes a request be expected in the past.
    hints.missed();
    let plan = hints.plan(us(2_000_000), span(500), LEAD).expect("trusted").expect("new");
    assert_eq!((plan.freeze_at, plan.expect), (us(2_000_000), us(2_000_000)));
}

#[test]
fn scatter_widens_the_margin_and_the_patience_up_to_their_bounds() {
    let wide = |error: i64| {
        let mut hints = Hints::default();
        for round in 0..200 {
            hinted(&mut hints, 20_000 * (round + 1), if round % 2 == 0 { error } else { -error });
        }
        let plan = hints.plan(us(9_000_000), span(50_000), LEAD).expect("trusted").expect("new");
        (plan.expect.since(plan.freeze_at), plan.until.since(plan.expect))
    };
    let (none, patience) = wide(0);
    assert_eq!((none, patience), (LEAD, PATIENCE_MIN));
    let (some, patience) = wide(500);
    assert!(some > LEAD + span(900) && some < LEAD + span(1_200), "{some}");
    assert!(patience > span(1_800) && patience < span(2_400), "{patience}");
    let (most, patience) = wide(4_900);
    assert_eq!((most, patience), (LEAD + MARGIN_EXTRA_MAX, PATIENCE_MAX));
}

#[test]
fn margins_narrow_again_when_the_sender_is_exact_again() {
    let mut hints = Hints::default();
    for round in 0..50 {
        hinted(&mut hints, 20_000 * (round + 1), if round % 2 == 0 { 3_000 } else { -3_000 });
    }
    for round in 50..150 {
        hinted(&mut hints, 20_000 * (round + 1), 0);
    }
    let plan = hints.plan(us(9_000_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert!(plan.expect.since(plan.freeze_at) < LEAD + Span(100));
}

#[test]
fn what_is_far_off_counts_as_ten_milliseconds() {
    let mut hints = Hints::default();
    hints.plan(us(0), span(10_010), LEAD).expect("trusted");
    assert_eq!(hints.came(us(10), false), Some(Came::Early));
    assert_eq!((hints.bias, hints.deviation), (-1_250_000, 2_500_000));
    let mut hints = Hints::default();
    hints.plan(us(0), Span::ZERO, LEAD).expect("trusted");
    hints.came(Time::MAX, true);
    assert_eq!((hints.bias, hints.deviation), (1_250_000, 2_500_000));
}

#[test]
fn a_request_that_comes_long_before_a_hinted_one_is_another() {
    let mut hints = Hints::default();
    hints.plan(us(0), span(100_000), LEAD).expect("trusted");
    assert_eq!(hints.came(us(89_999), false), None);
    assert_eq!((hints.bias, hints.deviation, hints.pending.len()), (0, 0, 1));
    assert_eq!(hints.came(us(100_000), true), Some(Came::Good));
}

#[test]
fn a_bias_of_requests_that_come_a_little_early_now_is_forgotten() {
    let mut hints = Hints::default();
    for round in 0..100 {
        hinted(&mut hints, 30_000 * (round + 1), 10_000);
    }
    assert!(hints.bias > 9_900_000, "{}", hints.bias);
    // More than ten milliseconds before they are expected now, but not before they were hinted.
    for round in 0..100 {
        hinted(&mut hints, 4_000_000 + 30_000 * round, -200);
    }
    assert!((-200_000..0).contains(&hints.bias), "{}", hints.bias);
}

#[test]
fn a_hint_that_ends_before_one_that_is_expected_sooner_leaves_that_one() {
    let withdrawn = |hints: &mut Hints, expect: Time| hints.withdrawn(expect);
    let expired = |hints: &mut Hints, expect: Time| hints.expired(us(4_000), expect);
    for end in [withdrawn, expired] {
        let mut hints = Hints::default();
        let sooner = hints.plan(us(0), span(6_000), LEAD).expect("trusted").expect("new");
        let later = hints.plan(us(0), span(9_000), LEAD).expect("trusted").expect("new");
        end(&mut hints, later.expect);
        assert_eq!(hints.came(sooner.expect, true), Some(Came::Good));
        assert_eq!((hints.bias, hints.deviation, hints.pending.len()), (0, 0, 0));
    }
}

#[test]
fn every_way_to_come_is_counted_once() {
    let come = |at: Time, ready: bool| {
        let mut hints = Hints::default();
        hints.plan(us(0), span(5_000), LEAD).expect("trusted");
        let came = hints.came(at, ready);
        (came, hints.counts())
    };
    let none = HintCounts::default();
    assert_eq!(come(us(4_000), true), (Some(Came::Good), HintCounts { good: 1, ..none }));
    assert_eq!(come(us(6_000), true), (Some(Came::Good), HintCounts { good: 1, ..none }));
    assert_eq!(come(Time(6_000_001), true), (Some(Came::Late), HintCounts { late: 1, ..none }));
    assert_eq!(come(Time(4_999_999), false), (Some(Came::Early), HintCounts { early: 1, ..none }));
    assert_eq!(come(us(5_000), false), (Some(Came::Missed), HintCounts { missed: 1, ..none }));
    assert_eq!(come(us(9_000), false), (Some(Came::Missed), HintCounts { missed: 1, ..none }));
}

#[test]
fn requests_without_a_hint_change_nothing() {
    let mut hints = Hints::default();
    assert_eq!(hints.came(us(5_000), true), None);
    hints.expired(us(6_000), us(5_000));
    assert_eq!(hints, Hints::default());
}

#[test]
fn four_false_hints_are_too_many_and_three_are_not() {
    let mut hints = Hints::default();
    lies(&mut hints, 0, 3);
    assert!(!refused(&hints, us(6_000)));
    lies(&mut hints, 6_000, 1);
    // The last expired at 8 ms: for 100 ms nothing is believed.
    assert!(refused(&hints, us(8_000)));
    assert!(refused(&hints, Time(us(108_000).0 - 1)));
    assert!(!refused(&hints, us(108_000)));
}

#[test]
fn half_of_the_hints_may_be_false_and_not_more() {
    let mut hints = Hints::default();
    for round in 0..4 {
        hinted(&mut hints, round * 10_000, 0);
    }
    lies(&mut hints, 40_000, 4);
    assert!(!refused(&hints, us(48_000)), "4 of 8");
    lies(&mut hints, 48_000, 1);
    assert!(refused(&hints, us(50_000)), "5 of 9");
}

#[test]
fn only_the_last_sixteen_hints_count() {
    let mut hints = Hints::default();
    for round in 0..100 {
        hinted(&mut hints, round * 10_000, 0);
    }
    lies(&mut hints, 1_000_000, 8);
    assert!(!refused(&hints, us(1_016_000)), "8 of the last 16");
    lies(&mut hints, 1_016_000, 1);
    assert!(refused(&hints, us(1_018_000)), "9 of the last 16");
}

#[test]
fn penalties_double_up_to_ten_seconds() {
    let mut hints = Hints::default();
    let mut at = 0;
    for expected in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
        lies(&mut hints, at, 4);
        at += 8_000 + expected * 1_000;
        assert!(refused(&hints, Time(us(at).0 - 1)), "{expected} ms");
        assert!(!refused(&hints, us(at)), "{expected} ms");
    }
}

#[test]
fn honest_hints_make_the_next_penalty_lighter_again() {
    let penalty_after = |honest: u64| {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 4);
        lies(&mut hints, 200_000, 4);
        for round in 0..honest {
            hinted(&mut hints, 1_000_000 + round * 10_000, 0);
        }
        hints.penalty
    };
    assert_eq!(penalty_after(0), Span::from_millis(400));
    assert_eq!(penalty_after(3), Span::from_millis(400));
    assert_eq!(penalty_after(4), Span::from_millis(200));
    assert_eq!(penalty_after(7), Span::from_millis(200));
    assert_eq!(penalty_after(8), Span::from_millis(100));
    assert_eq!(penalty_after(40), Span::from_millis(100));
}

#[test]
fn a_false_hint_ends_a_run_of_honest_ones() {
    let mut hints = Hints::default();
    lies(&mut hints, 0, 4);
    for round in 0..3 {
        hinted(&mut hints, 1_000_000 + round * 10_000, 0);
    }
    lies(&mut hints, 1_100_000, 1);
    hinted(&mut hints, 1_200_000, 0);
    assert_eq!(hints.penalty, Span::from_millis(200));
}

#[test]
fn requests_before_their_time_are_neither_honest_nor_false() {
    let mut hints = Hints::default();
    lies(&mut hints, 0, 3);
    for round in 0..20 {
        hints.plan(us(10_000 + round), span(5_000), LEAD).expect("trusted");
        assert_eq!(hints.came(us(10_000 + round), false), Some(Came::Early));
    }
    hints.bias = 0;
    hints.deviation = 0;
    lies(&mut hints, 20_000, 1);
    assert!(refused(&hints, us(22_000)));
}

#[test]
fn a_hint_that_was_kept_but_could_not_be_honoured_is_honest() {
    let mut hints = Hints::default();
    for round in 0..4 {
        hints.plan(us(round * 10_000), span(500), LEAD).expect("trusted");
        assert_eq!(hints.came(us(round * 10_000 + 500), false), Some(Came::Missed));
    }
    lies(&mut hints, 40_000, 4);
    assert!(!refused(&hints, us(48_000)));
}

#[test]
fn requests_that_come_after_the_patience_teach_it() {
    // Always 3 ms late: the first ones count as false, then the bias is known.
    let mut hints = Hints::default();
    for round in 0..40 {
        let at = round * 20_000;
        let plan = hints.plan(us(at), span(5_000), LEAD).expect("never distrusted").expect("new");
        if plan.until < us(at + 8_000) {
            hints.expired(plan.until, plan.expect);
        }
        hints.came(us(at + 8_000), true);
    }
    let counts = hints.counts();
    assert!(counts.false_ <= 2, "{counts:?}");
    assert!(counts.good >= 30, "{counts:?}");
}

#[test]
fn only_the_first_request_after_a_false_hint_teaches() {
    let mut hints = Hints::default();
    lies(&mut hints, 0, 1);
    hints.came(us(1_800), true);
    assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
    hints.came(us(1_800), true);
    assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
}

#[test]
fn a_request_long_after_a_false_hint_teaches_nothing() {
    let teaches = |at: Time| {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 1);
        hints.came(at, true);
        hints.bias
    };
    assert_eq!(teaches(us(11_000)), 1_250_000);
    assert_eq!(teaches(Time(us(11_000).0 + 1)), 0);
}

#[test]
fn who_hints_all_the_time_is_not_listened_to() {
    // A hint every millisecond, whether or not a request comes.
    for (within, every) in [(1, 20), (1, 10), (1, 5), (3, 10), (10, 20), (10, 10), (1, 1_000_000)] {
        let mut hints = Hints::default();
        let mut refused = 0;
        for now in 0..5_000u64 {
            let at = us(now * 1_000);
            let over = |next: &&Pending| at >= next.plan.until;
            let over: Vec<_> = hints.pending.iter().take_while(over).map(|next| next.plan.expect).collect();
            over.into_iter().for_each(|expect| hints.expired(at, expect));
            if now % every == every / 2 {
                let ready = hints.pending.first().is_some_and(|next| at >= next.plan.freeze_at + LEAD);
                hints.came(at, ready);
            }
            refused += u32::from(hints.plan(at, Span::from_millis(within), LEAD).is_err());
        }
        assert!(refused > 4_000, "{refused} of 5000 refused: {within} ms ahead, one in {every}");
    }
}

#[test]
fn who_hints_several_requests_ahead_is_honest() {
    // Requests 4 ms apart, each hinted 10 ms ahead, and once more 6 ms ahead; off by up to 0.8 ms.
    let mut hints = Hints::default();
    for round in 3..500u64 {
        let request = us(round * 4_000 + round % 3 * 400);
        let now = us(round * 4_000 - 2_000);
        for ahead in [2, 1] {
            hints.plan(now, us((round + ahead) * 4_000).since(now), LEAD).expect("trusted");
        }
        let plans: Vec<_> = hints.pending.iter().map(|next| next.plan).collect();
        let over = plans.into_iter().take_while(|plan| request > plan.until);
        over.for_each(|plan| hints.expired(plan.until, plan.expect));
        hints.came(request, true);
    }
    assert_eq!(hints.counts().false_, 0);
    assert!(hints.counts().good > 200);
}

#[test]
fn an_honest_sender_with_a_lie_now_and_then_stays_trusted() {
    let mut hints = Hints::default();
    for round in 0..200 {
        if round % 3 == 0 {
            lie(&mut hints, round * 10_000).expect("trusted");
        } else {
            hinted(&mut hints, round * 10_000, 0);
        }
    }
    assert_eq!(hints.counts(), HintCounts { good: 133, false_: 67, ..HintCounts::default() });
}

#[test]
fn several_requests_may_be_hinted_and_come_in_their_order() {
    let mut hints = Hints::default();
    let later = hints.plan(us(0), span(9_000), LEAD).expect("trusted").expect("new");
    let sooner = hints.plan(us(0), span(5_000), LEAD).expect("trusted").expect("new");
    assert_eq!(hints.plan(us(0), span(5_499), LEAD), Ok(None), "the same request");
    assert_eq!(hints.plan(us(0), span(4_501), LEAD), Ok(None), "the same request");
    assert!(hints.plan(us(0), span(5_500), LEAD).expect("trusted").is_some(), "another one");
    let expected: Vec<_> = hints.pending.iter().map(|next| next.plan.expect).collect();
    assert_eq!(expected, [sooner.expect, us(5_500), later.expect]);
    assert_eq!(hints.came(us(5_000), true), Some(Came::Good));
    hints.came_meanwhile(us(5_500));
    hints.expired(us(10_000), later.expect);
    assert_eq!(hints.counts(), HintCounts { good: 2, false_: 1, ..HintCounts::default() });
    hints.came_meanwhile(us(5_500));
    assert_eq!(hints.counts().good, 2, "none is pending");
}

#[test]
fn a_bias_by_which_hints_end_while_their_sender_is_served_is_forgotten() {
    let mut hints = Hints::default();
    // What came was taken for what was hinted, 4 ms too soon.
    for round in 0..100 {
        hinted(&mut hints, 10_000 * (round + 1), -4_000);
    }
    assert!(hints.bias < -3_900_000, "{}", hints.bias);
    // Now each hint ends before its request comes, and nothing is learnt of that.
    for round in 0..60 {
        let plan = hints.plan(us(2_000_000 + 10_000 * round), span(5_000), LEAD).expect("trusted");
        hints.came_meanwhile(plan.expect("new").expect);
    }
    let plan = hints.plan(us(3_000_000), span(5_000), LEAD).expect("trusted").expect("new");
    assert!(us(3_005_000).since(plan.expect) < span(10), "{plan:?}");
}

#[test]
fn what_is_too_far_ahead_is_hinted_when_it_is_nearer() {
    let mut hints = Hints::default();
    for ahead in [WITHIN_MAX + Span(1), Span::from_secs(3_600), Span::MAX] {
        assert_eq!(hints.plan(us(0), ahead, LEAD), Err(Missed::Early));
    }
    assert!(hints.pending.is_empty());
    assert!(hints.plan(us(0), WITHIN_MAX, LEAD).expect("near enough").is_some());
}

#[test]
fn so_many_hints_may_be_pending_and_no_more() {
    let mut hints = Hints::default();
    for step in 0..PENDING_MAX as u64 {
        hints.plan(us(0), span(1_000 + step * 500), LEAD).expect("trusted").expect("new");
    }
    assert_eq!(hints.plan(us(0), span(90_000), LEAD), Err(Missed::Distrusted));
    hints.came(us(1_000), true);
    assert!(hints.plan(us(0), span(90_000), LEAD).is_ok());
}

#[test]
fn a_refused_hint_is_counted_and_costs_no_trust() {
    let mut hints = Hints::default();
    for _ in 0..20 {
        hints.missed();
    }
    assert_eq!(hints.counts(), HintCounts { missed: 20, ..HintCounts::default() });
    assert!(hints.plan(us(0), span(1_000), LEAD).is_ok());
}
