//! Gaps: how long somebody waits between two turns, at most.

use super::*;

/// Four of 12 GiB, of which one fits at a time, on a bus that is slow at first.
fn four(gap_max: u64, moving_percent: u32, first_gib_per_second: u64) -> Rig {
    let mut rig = Rig::new(Settings {
        gap_max: Span::from_secs(gap_max),
        moving_share: Ratio::from_percent(moving_percent),
        ..settings()
    });
    rig.bandwidth = first_gib_per_second << 30;
    for id in 1..=4 {
        rig.busy(id, id, 0, 12);
    }
    rig
}

/// The gaps so far: whose, from when on, and how long, in seconds.
fn gaps(rig: &Rig) -> Vec<(u64, f64, f64)> {
    let mut ended = BTreeMap::new();
    let mut gaps = Vec::new();
    for (at, action) in &rig.diary {
        match action {
            Action::TurnEnds { tenant, .. } => drop(ended.insert(*tenant, *at)),
            Action::TurnBegins { tenant, .. } => gaps.extend(ended.remove(tenant).map(|since| {
                (tenant.0, since.since(Time::ZERO).as_secs_f64(), at.since(since).as_secs_f64())
            })),
            _ => {}
        }
    }
    gaps
}

fn longest(rig: &Rig) -> (u64, f64, f64) {
    gaps(rig).into_iter().max_by(|a, b| a.2.total_cmp(&b.2)).unwrap_or_default()
}

#[test]
fn no_gap_is_too_long_while_costs_are_being_learnt() {
    for gap_max in [10, 22, 35] {
        for percent in [2, 4, 5, 10] {
            for slow in [8, 12, 20, 40] {
                // Where so much has to be moved, there is no choice.
                if 4 * 12 * 4 > gap_max * slow {
                    continue;
                }
                for fast_from in [0.5, 2.0, 8.0, 20.0] {
                    let mut rig = four(gap_max, percent, slow);
                    rig.until(fast_from);
                    rig.bandwidth = 40 << 30;
                    rig.until(150.0);
                    let (who, since, gap) = longest(&rig);
                    assert!(
                        gap <= gap_max as f64,
                        "{who} waited for {gap} s from {since} s on, with at most {gap_max} s, {percent}% and \
                         {slow} GiB/s until {fast_from} s: {:?}",
                        rig.turns(0.0)
                    );
                }
            }
        }
    }
}

#[test]
fn no_gap_is_too_long_when_one_of_several_ends() {
    for gap_max in [22, 35] {
        for step in 0u32..20 {
            let mut rig = four(gap_max, 4, 40);
            let end = 100.0 + f64::from(step) * 1.3;
            rig.until(end);
            let leaver = TenantId(u64::from(step % 4) + 1);
            rig.tell(Event::Left(leaver));
            rig.tell(Event::Buried(leaver));
            rig.until(end + 100.0);
            let (who, since, gap) = longest(&rig);
            assert!(
                gap <= gap_max as f64,
                "{who} waited for {gap} s from {since} s on, with at most {gap_max} s; {leaver} left at {end} s"
            );
        }
    }
}

/// Whoever is left has what the one who ended had: from there on a round is shorter by one turn.
#[test]
fn when_one_of_four_ends_the_others_have_a_third_each_from_the_next_turn_on() {
    for step in 0u32..10 {
        let mut rig = four(22, 4, 40);
        let end = 100.0 + f64::from(step) * 2.9;
        rig.until(end);
        let leaver = TenantId(u64::from(step % 4) + 1);
        rig.tell(Event::Left(leaver));
        rig.tell(Event::Buried(leaver));
        let others: Vec<_> = (1..=4).map(TenantId).filter(|id| *id != leaver).collect();
        // From when the turn that is on, or the next one, is over: everybody has had one when a round of three is.
        let begun = rig.diary.len();
        let ends = |rig: &Rig| {
            let ends = |(_, action): &&(Time, Action)| matches!(action, Action::TurnEnds { .. });
            rig.diary[begun..].iter().filter(ends).count()
        };
        let from = rig.wait_for(|rig| ends(rig) >= 1);
        let before: Vec<_> = others.iter().map(|&id| rig.ran(id)).collect();
        let to = rig.wait_for(|rig| ends(rig) >= 4);
        for (&id, before) in others.iter().zip(before) {
            let share = (rig.ran(id) - before) / (to - from);
            assert!(share > 0.30, "{id} had {share} of the time after {leaver} left at {end} s");
        }
    }
}

/// Six of 12 GiB beside a service of 2 GiB that always has requests: one fits beside it at a time.
#[test]
fn no_gap_is_too_long_beside_a_service() {
    for gap_max in [10, 22] {
        let mut rig = Rig::new(Settings { gap_max: Span::from_secs(gap_max), ..settings() });
        rig.tell(Event::Arena(Bytes::from_gib(128)));
        rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
        let service = rig.tenant(10, 100, 0, 2);
        for id in 1..=6 {
            rig.busy(id, id, 0, 12);
        }
        let most = gap_max as f64;
        for _ in 0..1_200 {
            critical::request(&mut rig, service, 0.25);
        }
        assert!(rig.core.is_critical(GpuId(0)));
        let (who, since, gap) = longest(&rig);
        assert!(gap <= most, "{who} waited for {gap} s from {since} s on, with at most {most} s");
        // And no more is moved than that takes.
        assert!(gap > most * 0.6, "{gap} s, where {most} s are allowed");
    }
}
