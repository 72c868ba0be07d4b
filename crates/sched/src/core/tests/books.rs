//! The books: what is listed where, and that the check of them can fail.

use super::*;
use crate::tenant::Tenant;

fn shaken(change: impl Fn(&mut Core)) -> String {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.busy(3, 100, 0, 1);
    rig.wait_for(|rig| rig.turns(0.0).len() > 2 && !rig.core.gpu_of(GpuId(0)).line.is_empty());
    assert_eq!(rig.core.check(), Ok(()));
    change(&mut rig.core);
    rig.core.check().unwrap_err()
}

fn tenant(core: &mut Core) -> &mut Tenant {
    core.tenants.iter_mut().map(|(_, tenant)| tenant).find(|tenant| tenant.away > Bytes::ZERO).unwrap()
}

fn gpu(core: &mut Core) -> &mut crate::gpu::Gpu {
    core.gpu_mut(GpuId(0))
}

#[test]
fn the_check_finds_every_sum_that_does_not_add_up() {
    type Shake = fn(&mut Core);
    let wrong: [(&str, Shake); 15] = [
        ("resident", |core| tenant(core).resident += Bytes(1)),
        ("away", |core| tenant(core).away += Bytes(1)),
        ("unsettled", |core| tenant(core).unsettled += Bytes(1)),
        ("grants", |core| tenant(core).granted_sum += Bytes(1)),
        ("requests", |core| tenant(core).asked_sum += Bytes(1)),
        ("may run", |core| tenant(core).grip = crate::tenant::Grip::Thawed),
        ("known to run", |core| gpu(core).running.clear()),
        ("held", |core| gpu(core).held += Bytes(1)),
        ("are away", |core| gpu(core).away += Bytes(1)),
        ("contexts", |core| gpu(core).residues += Bytes(1)),
        ("latency-critical", |core| gpu(core).critical_wanting += 1),
        ("not in line", |core| {
            let &(_, id) = gpu(core).line.first().unwrap();
            core.tenants.get_mut(id).unwrap().in_line = None;
        }),
        ("does not wait", |core| {
            let &(_, id) = gpu(core).waits.first().unwrap();
            core.tenants.get_mut(id).unwrap().in_waits = None;
        }),
        ("in the arena", |core| core.arena_needed += Bytes(1)),
        ("copies", |core| core.copies_sum += Bytes(1)),
    ];
    for (what, change) in wrong {
        let said = shaken(change);
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn two_tenants_on_the_shortest_slice_are_found() {
    let mut rig = Rig::new(settings());
    let both = [rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1)];
    for tenant in both {
        rig.tell(Event::Measured { tenant, busy: Ratio::from_percent(10) });
    }
    rig.until(1.0);
    assert_eq!(rig.runs(), [1, 2]);
    rig.core.tenants.get_mut(both[0]).unwrap().slice = Slice::Shortest;
    assert_eq!(rig.core.check(), Ok(()), "one may have it");
    rig.core.tenants.get_mut(both[1]).unwrap().slice = Slice::Shortest;
    assert!(rig.core.check().unwrap_err().contains("shortest slice"));
}

#[test]
fn only_those_who_have_something_that_could_go_are_asked_for_room() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.tenant(1, 1, 0, 1), rig.tenant(2, 2, 0, 1));
    rig.tenant(3, 3, 0, 0);
    let way = |rig: &Rig| -> BTreeSet<TenantId> { rig.core.gpu_of(GpuId(0)).way.first_to_last().collect() };
    assert_eq!(way(&rig), BTreeSet::from([a, b]));
    let owned = *rig.sizes.keys().find(|owned| owned.tenant == a).unwrap();
    rig.tell(Event::Pinned { owned, pinned: true });
    assert_eq!(way(&rig), BTreeSet::from([b]));
    rig.tell(Event::Pinned { owned, pinned: false });
    assert_eq!(way(&rig), BTreeSet::from([a, b]));
}

#[test]
fn idle_ones_make_room_before_active_ones_and_paused_ones_before_those() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.busy(1, 1, 0, 3);
    rig.tenant(2, 2, 0, 3);
    rig.tenant(3, 3, 0, 3);
    rig.tenant(4, 100, 0, 3);
    rig.tell(Event::Pause(JobId(3)));
    rig.until(1.0);
    let order: Vec<u64> = rig.core.gpu_of(GpuId(0)).way.first_to_last().map(|id| id.0).collect();
    assert_eq!(order, [3, 2, 1, 4], "whoever is latency-critical comes last");
}

#[test]
fn whoever_has_what_it_asked_for_asks_no_more_and_whoever_left_leaves_nothing() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 2);
    assert!(rig.core.gpu_of(GpuId(0)).asking.is_empty());
    assert_eq!(rig.core.jobs.get(JobId(1)).unwrap().here(GpuId(0)).bytes, Bytes::from_gib(2));
    rig.tell(Event::Left(a));
    assert!(rig.core.jobs.get(JobId(1)).unwrap().here.is_empty());
    let books = &rig.core.gpu_of(GpuId(0));
    assert!(books.sizes.is_empty() && books.pieces.is_empty() && books.users.is_empty());
    assert_eq!((books.tenants, books.active), (0, 0));
}
