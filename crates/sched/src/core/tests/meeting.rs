//! Where the latency-critical meet each other, best-effort work and programs outside of rota: who has which slice.

use super::*;

fn critical(slo: Option<u64>) -> Terms {
    Terms { class: Class::LatencyCritical, slo: slo.map(Span::from_millis), ..Terms::default() }
}

/// Somebody latency-critical with work, beside two with turns. All fit.
fn beside(settings: Settings) -> (Rig, TenantId) {
    let mut rig = Rig::new(settings);
    rig.job(1, critical(None));
    let lc = rig.tenant(1, 1, 0, 1);
    let _ = (rig.busy(2, 2, 0, 1), rig.busy(3, 3, 0, 1));
    rig.tell(Event::wants(lc));
    rig.until(1.0);
    (rig, lc)
}

/// The slices of those who run, without the latency-critical one.
fn slices(rig: &Rig) -> Vec<Slice> {
    rig.thawed.iter().filter(|(id, _)| id.0 != 1).map(|(_, &(_, slice))| slice).collect()
}

#[test]
fn one_at_a_time_runs_beside_the_latency_critical_on_the_shortest_slice() {
    let (rig, _) = beside(settings());
    assert_eq!(slices(&rig), [Slice::Shortest]);
}

#[test]
fn beside_a_stranger_nobody_has_the_shortest_slice() {
    let (mut rig, lc) = beside(settings());
    rig.tell(Event::Strangers { gpu: GpuId(0), present: true });
    rig.until(1.01);
    assert_eq!(slices(&rig), [Slice::Guaranteed], "also one that has it already");
    rig.until(5.0);
    assert_eq!(slices(&rig), [Slice::Guaranteed]);
    rig.tell(Event::Strangers { gpu: GpuId(0), present: false });
    rig.until(6.0);
    assert_eq!(slices(&rig), [Slice::Shortest]);
    // One that hung up and lives is a stranger too.
    let gone = rig.tenant(4, 4, 0, 1);
    rig.tell(Event::Left(gone));
    rig.tell(Event::Lingers(gone));
    rig.until(7.0);
    assert_eq!(slices(&rig), [Slice::Guaranteed]);
    rig.tell(Event::Buried(gone));
    rig.until(8.0);
    assert_eq!(slices(&rig), [Slice::Shortest]);
    assert_eq!(rig.thawed[&lc].1, Slice::Critical);
}

#[test]
fn who_has_less_time_does_not_wait_for_a_long_slice_of_who_has_more() {
    let mut rig = Rig::new(settings());
    for (id, slo) in [(1, Some(50)), (2, Some(5)), (3, None), (4, Some(5))] {
        rig.job(id, critical(slo));
        rig.busy(id, id, 0, 1);
    }
    rig.until(1.0);
    let slices = |rig: &Rig| rig.thawed.values().map(|&(_, slice)| slice).collect::<Vec<_>>();
    use Slice::{Critical, Guaranteed};
    assert_eq!(slices(&rig), [Guaranteed, Critical, Guaranteed, Critical]);
    rig.job(1, critical(Some(2)));
    rig.until(2.0);
    assert_eq!(slices(&rig), [Critical, Guaranteed, Guaranteed, Guaranteed]);
    rig.tell(Event::Pause(JobId(1)));
    rig.until(3.0);
    assert_eq!(slices(&rig), [Critical, Guaranteed, Critical], "one that is paused is in nobody's way");
}

#[test]
fn what_is_favoured_decides_about_hints_and_slices() {
    let favoured = |favour| {
        let (mut rig, lc) = beside(Settings { favour, ..settings() });
        rig.tell(Event::Idle(lc));
        rig.until(1.1);
        rig.tell(Event::Hint { tenant: lc, within: Span::from_millis(3) });
        let during = slices(&rig);
        rig.until(1.103);
        let missed = rig.said(1.0, |action| match action {
            Action::HintMissed { why, .. } => Some(*why),
            _ => None,
        });
        (during, slices(&rig), missed)
    };
    assert_eq!(favoured(Favour::Latency), (vec![Slice::Shortest], vec![], vec![]));
    let missed = vec![Missed::Unfavoured];
    assert_eq!(favoured(Favour::Balanced), (vec![Slice::Shortest], vec![Slice::Shortest], missed.clone()));
    assert_eq!(favoured(Favour::Throughput), (vec![Slice::Guaranteed], vec![Slice::Guaranteed], missed));
}
