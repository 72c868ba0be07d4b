//! Memory that is reserved, and that of the latency-critical: whom it makes room for, and what is left to promise.

use super::*;

fn reserved() -> Terms {
    Terms { reserve: true, ..Terms::default() }
}

fn critical() -> Terms {
    Terms { class: Class::LatencyCritical, ..Terms::default() }
}

/// How many GiB of a tenant went out, since an instant in seconds.
fn went_out(rig: &Rig, tenant: TenantId, since: f64) -> u64 {
    let out = rig.said(since, |action| match action {
        Action::Move { out, .. } => Some(out.iter().filter(|owned| owned.tenant == tenant).count() as u64),
        _ => None,
    });
    out.iter().sum()
}

fn denials(rig: &Rig) -> Vec<(u64, Short)> {
    rig.said(0.0, |action| match action {
        Action::Deny { tenant, why, .. } => Some((tenant.0, *why)),
        _ => None,
    })
}

fn device(wanted: u64, usable: u64) -> Short {
    Short::Device { wanted: Bytes::from_gib(wanted), usable: Bytes::from_gib(usable) }
}

#[test]
fn what_is_reserved_stays_also_while_its_owner_is_idle_or_paused() {
    let mut rig = Rig::new(settings());
    rig.job(1, reserved());
    let kept = rig.busy(1, 1, 0, 6);
    let (b, c) = (rig.busy(2, 2, 0, 10), rig.busy(3, 3, 0, 10));
    rig.until(60.0);
    rig.tell(Event::Idle(kept));
    rig.until(120.0);
    rig.tell(Event::Pause(JobId(1)));
    rig.until(180.0);
    assert_eq!(went_out(&rig, kept, 0.0), 0);
    assert!(rig.ran(kept) > 10.0 && rig.ran(b) > 50.0 && rig.ran(c) > 50.0);
    assert_eq!(denials(&rig), []);
}

#[test]
fn what_is_reserved_is_promised_to_nobody_else() {
    let mut rig = Rig::new(settings());
    rig.job(1, reserved());
    rig.tenant(1, 1, 0, 6);
    let b = rig.busy(2, 2, 0, 10);
    rig.ask(b, 100, GIB);
    assert_eq!(denials(&rig), [(2, device(11, 10))]);
    // A context for which something reserved would have to go waits at the door.
    rig.tell(Event::Arrived { tenant: TenantId(3), job: JobId(2), gpu: GpuId(0), residue: Bytes(GIB) });
    rig.until(1.0);
    let here = |rig: &Rig| rig.core.tenant(TenantId(3)).unwrap().phase == crate::tenant::Phase::Here;
    assert!(!here(&rig));
    let handles = vec![rig.handle_of(TenantId(1))];
    rig.tell(Event::Freed { tenant: TenantId(1), handles });
    rig.until(2.0);
    assert!(here(&rig));
}

#[test]
fn one_that_is_reserved_gets_no_more_than_leaves_room_for_the_largest_other() {
    let mut rig = Rig::new(settings());
    rig.job(2, reserved());
    rig.busy(1, 1, 0, 10);
    let kept = rig.busy(2, 2, 0, 6);
    rig.ask(kept, 100, GIB);
    assert_eq!(denials(&rig), [(2, device(17, 16))]);
    // Without a reserve it would have had that.
    rig.job(2, Terms::default());
    rig.ask(kept, 101, GIB);
    rig.until(5.0);
    assert_eq!(denials(&rig).len(), 1);
    assert_eq!(rig.core.tenant(kept).unwrap().whole_bytes(), Bytes::from_gib(7));
}

#[test]
fn a_job_becomes_reserved_only_where_that_leaves_everybody_room() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 8), rig.busy(2, 2, 0, 9));
    rig.until(20.0);
    assert_eq!(rig.core.cannot_reserve(JobId(1)), Some(device(17, 16)));
    assert_eq!(rig.core.cannot_reserve(JobId(99)), None);
    let handles = vec![rig.handle_of(b)];
    rig.tell(Event::Freed { tenant: b, handles });
    assert_eq!(rig.core.cannot_reserve(JobId(1)), None);
    // What is away when it becomes reserved comes back with its next turn.
    rig.busy(3, 3, 0, 8);
    rig.wait_for(|rig| rig.core.tenant(a).unwrap().away > Bytes::from_gib(4));
    assert_eq!(rig.core.cannot_reserve(JobId(1)), None);
    rig.job(1, reserved());
    assert_eq!(rig.core.cannot_reserve(JobId(1)), None, "it is");
    assert_eq!(rig.core.cannot_reserve(JobId(2)), Some(device(24, 16)), "three of 8");
    let since = rig.wait_for(|rig| rig.core.tenant(a).unwrap().away == Bytes::ZERO);
    rig.until(since + 60.0);
    assert_eq!(went_out(&rig, a, since), 0);
    assert!(went_out(&rig, b, since) > 0 && rig.ran(b) > 15.0);
}

#[test]
fn two_of_one_job_are_reserved_together() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 3), rig.busy(2, 1, 0, 4), rig.busy(3, 3, 0, 10));
    rig.until(5.0);
    assert_eq!(rig.core.cannot_reserve(JobId(1)), Some(device(17, 16)));
    rig.tell(Event::Left(TenantId(1)));
    rig.tell(Event::Buried(TenantId(1)));
    assert_eq!(rig.core.cannot_reserve(JobId(1)), None);
}

#[test]
fn nobody_is_sent_where_all_is_reserved() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, reserved());
    rig.tenant(1, 1, 0, 12);
    rig.busy(2, 2, 1, 8);
    rig.busy(3, 3, 1, 8);
    let place = |bytes| Event::Place {
        ticket: TicketId(7),
        job: JobId(2),
        count: 1,
        among: vec![],
        bytes: Bytes::from_gib(bytes),
        residue: Some(Bytes::ZERO),
    };
    let placed = |rig: &Rig| {
        let all = rig.said(0.0, |action| match action {
            Action::Place { gpus, .. } => Some(gpus.clone()),
            _ => None,
        });
        all.last().cloned().unwrap()
    };
    rig.tell(place(4));
    assert_eq!(placed(&rig), [GpuId(0)]);
    rig.tell(place(5));
    assert_eq!(
        placed(&rig),
        [GpuId(1)],
        "5 GiB are not to be had beside 12 that stay, however little waits there"
    );
}

#[test]
fn the_latency_critical_make_room_only_when_nobody_else_can() {
    let mut rig = Rig::new(settings());
    rig.job(1, critical());
    let lc = rig.tenant(1, 1, 0, 4);
    // It never had work: all others have, and go first all the same.
    for id in 2..=5 {
        rig.busy(id, id, 0, 6);
    }
    rig.until(60.0);
    assert!(rig.moves(0.0).len() > 5);
    assert_eq!(went_out(&rig, lc, 0.0), 0);
    // One that finds no room without it gets that, as long as there are no requests.
    let large = rig.busy(6, 6, 0, 13);
    rig.wait_for(|rig| rig.ran(large) > 1.0);
    assert!(went_out(&rig, lc, 60.0) > 0);
}

#[test]
fn one_with_requests_keeps_its_memory_between_them() {
    let mut rig = Rig::new(settings());
    rig.job(1, critical());
    let lc = rig.tenant(1, 1, 0, 6);
    let large = rig.busy(2, 2, 0, 12);
    let mut at = rig.now.0 as f64 / 1e9;
    rig.tell(Event::wants(lc));
    rig.wait_for(|rig| rig.core.tenant(lc).unwrap().is_whole());
    let since = rig.now.0 as f64 / 1e9;
    for _ in 0..500 {
        at = at.max(since) + 0.005;
        rig.until(at);
        rig.tell(Event::wants(lc));
        at += 0.005;
        rig.until(at);
        rig.tell(Event::Idle(lc));
    }
    assert_eq!(went_out(&rig, lc, since), 0, "it had 500 requests in 5 s");
    rig.until(at + 10.0);
    assert!(rig.ran(large) > 5.0, "and none for 10 s");
}
