//! How things are, for people.

use super::*;

fn state(rig: &Rig, tenant: TenantId) -> State {
    rig.core.describe(tenant, rig.now).unwrap().state
}

#[test]
fn everybody_is_in_the_state_that_people_would_say() {
    let mut rig = Rig::new(Settings { tenants_max: 4, ..settings() });
    let (one, other) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    let idle = rig.tenant(3, 3, 0, 0);
    rig.job(4, Terms::default());
    for id in [4, 5].map(TenantId) {
        rig.tell(Event::Arrived { tenant: id, job: JobId(4), gpu: GpuId(0), residue: Bytes::ZERO });
    }
    assert_eq!(state(&rig, TenantId(4)), State::Joined, "it has no context yet");
    assert_eq!(state(&rig, TenantId(5)), State::Queued);
    rig.wait_for(|rig| rig.turns(0.0).len() > 2);
    let (runs, waits) = if rig.runs() == [1] { (one, other) } else { (other, one) };
    assert_eq!(state(&rig, runs), State::Running);
    assert_eq!(state(&rig, waits), State::Away);
    assert_eq!(state(&rig, idle), State::Frozen, "nothing of it is away, but it is not its turn");
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).moving.is_some());
    assert_eq!(state(&rig, runs), State::Moving);
    rig.tell(Event::Pause(JobId(3)));
    assert_eq!(state(&rig, idle), State::Paused);
}

#[test]
fn waiting_counts_from_the_end_of_the_last_turn_and_not_while_one_runs() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(1), ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    let idle = rig.tenant(3, 3, 0, 4);
    rig.until(0.5);
    let waiting = |rig: &Rig, id| rig.core.describe(id, rig.now).unwrap().waiting;
    assert_eq!(waiting(&rig, a), Span::ZERO);
    assert_eq!(waiting(&rig, b), Span::from_millis(500));
    assert_eq!(waiting(&rig, idle), Span::ZERO, "it wants nothing");
    rig.until(1.5);
    assert_eq!(waiting(&rig, b), Span::ZERO);
    close(waiting(&rig, a).as_secs_f64(), 0.5, 0.02);
}

#[test]
fn whoever_says_once_more_that_it_has_work_has_waited_as_long_as_before() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(1), ..settings() });
    let (_, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(0.5);
    rig.tell(Event::wants(b));
    assert_eq!(rig.core.describe(b, rig.now).unwrap().waiting, Span::from_millis(500));
}

#[test]
fn turns_are_counted() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(5.0);
    for tenant in [a, b] {
        let turns = rig.turns(0.0).iter().filter(|&&id| id == tenant.0).count() as u64;
        assert!(turns > 10);
        assert_eq!(rig.core.describe(tenant, rig.now).unwrap().turns, turns);
    }
}

#[test]
fn a_gpu_shows_what_tenants_contexts_and_the_dead_take() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    let residue = Bytes::from_gib(1);
    rig.tell(Event::Arrived { tenant: TenantId(1), job: JobId(1), gpu: GpuId(0), residue });
    rig.tell(Event::Context { tenant: TenantId(1), present: true });
    rig.ask(TenantId(1), 1, 3 * GIB);
    let dead = rig.tenant(2, 2, 0, 2);
    rig.tell(Event::Left(dead));
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(5) });
    let view = rig.core.gpu(GpuId(0)).unwrap();
    assert_eq!((view.used, view.unmanaged), (Bytes::from_gib(6), Bytes::from_gib(5)));
    rig.tell(Event::Lingers(dead));
    assert_eq!(rig.core.gpu(GpuId(0)).unwrap().used, Bytes::from_gib(6));
    rig.tell(Event::Buried(dead));
    assert_eq!(rig.core.gpu(GpuId(0)).unwrap().used, Bytes::from_gib(4));
}

#[test]
fn the_arena_shows_what_is_away_and_what_is_copied() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    assert_eq!(rig.core.arena(), (Bytes::from_gib(8), Bytes::from_gib(64)));
    let owned = *rig.sizes.keys().find(|owned| !rig.away.contains(owned)).unwrap();
    rig.tell(Event::Copied { owned, clean: true });
    assert_eq!(rig.core.arena().0, Bytes::from_gib(9));
    rig.tell(Event::Copied { owned, clean: false });
    assert_eq!(rig.core.arena().0, Bytes::from_gib(8));
}
