//! Tenants that outlived a worker.

use super::*;

impl Rig {
    /// A tenant of an earlier worker, with so many handles of 1 GiB here and so many away.
    fn survivor(&mut self, id: u64, here: u64, away: u64) -> TenantId {
        let tenant = TenantId(id);
        self.job(id, Terms::default());
        let mut handles = Vec::new();
        for number in 0..here + away {
            let handle = HandleId(self.next_handle);
            self.next_handle += 1;
            let owned = Owned { tenant, handle };
            self.sizes.insert(owned, Bytes(GIB));
            let place = if number < here {
                SurvivorPlace::Device { movable: true }
            } else {
                self.away.insert(owned);
                SurvivorPlace::Arena
            };
            handles.push(Survivor { handle, bytes: Bytes(GIB), place });
        }
        self.tell(Event::Rejoined { tenant, job: JobId(id), gpu: GpuId(0), residue: Bytes::ZERO, handles });
        tenant
    }

    fn go_on(&mut self, tenants: &[TenantId]) {
        for &tenant in tenants {
            self.tell(Event::Context { tenant, present: true });
        }
        for &tenant in tenants {
            self.tell(Event::wants(tenant));
        }
    }
}

#[test]
fn those_who_are_here_and_those_who_are_away_take_turns_again() {
    let mut rig = Rig::new(settings());
    let all = [rig.survivor(7, 12, 0), rig.survivor(8, 4, 8), rig.survivor(9, 0, 12)];
    assert!(rig.diary.is_empty(), "nothing happens before their channels are known: {:?}", rig.diary);
    rig.go_on(&all);
    assert_eq!(rig.moves(0.0).len(), 0, "whoever is whole goes on before others are moved in");
    rig.until(200.0);
    for tenant in all {
        assert!(rig.ran(tenant) > 40.0, "{tenant}: {}", rig.ran(tenant));
    }
}

#[test]
fn more_than_fits_is_taken_in_and_makes_room() {
    let mut rig = Rig::new(settings());
    let all = [rig.survivor(1, 12, 0), rig.survivor(2, 12, 0)];
    rig.go_on(&all);
    rig.until(100.0);
    assert!(all.iter().all(|&tenant| rig.ran(tenant) > 30.0), "{:?}", rig.ran);
    let newcomer = rig.busy(3, 3, 0, 4);
    rig.until(200.0);
    assert!(rig.ran(newcomer) > 10.0);
}

#[test]
fn what_is_unsettled_waits_until_its_tenant_answers() {
    let mut rig = Rig::new(settings());
    let (tenant, handle) = (TenantId(4), HandleId(1));
    let owned = Owned { tenant, handle };
    rig.job(4, Terms::default());
    rig.sizes.insert(owned, Bytes(GIB));
    rig.away.insert(owned);
    let handles = vec![Survivor { handle, bytes: Bytes(GIB), place: SurvivorPlace::Unsettled }];
    rig.tell(Event::Rejoined { tenant, job: JobId(4), gpu: GpuId(0), residue: Bytes::ZERO, handles });
    rig.go_on(&[tenant]);
    rig.until(5.0);
    assert_eq!(rig.ran(tenant), 0.0);
    rig.tell(Event::Answers(tenant));
    rig.until(10.0);
    assert!(rig.ran(tenant) > 4.0);
    assert_eq!(rig.moves(0.0), [(0, 1)]);
}

#[test]
fn nobody_comes_back_twice_or_to_nowhere() {
    let mut rig = Rig::new(settings());
    let tenant = rig.survivor(1, 1, 0);
    for (tenant, job, gpu) in [(tenant, JobId(1), GpuId(0)), (TenantId(2), JobId(9), GpuId(0))] {
        let before = rig.diary.len();
        let (residue, handles) = (Bytes::ZERO, Vec::new());
        rig.tell(Event::Rejoined { tenant, job, gpu, residue, handles });
        let said = &rig.diary[before..];
        assert!(matches!(said, [(_, Action::Refuse { .. })]), "{said:?}");
    }
}
