//! Events that make no sense: about somebody who is not there yet or no longer, about handles, requests and actions that
//! nobody knows. They may come when programs misbehave or messages cross; nothing may follow from them.

use super::life::Life;
use super::truth::{Stage, Tenant};
use sched::{Bytes, Event, GpuId, HandleId, JobId, OpId, Outcome, Owned, Ratio, RequestId, Span, TenantId};

const NOBODY: u64 = 9_999_999;

impl Life {
    /// Something that cannot be is said to have happened.
    pub(crate) fn nonsense(&mut self) {
        // Anybody: at the door, living, dead, buried, never born.
        let tenant = TenantId(1 + self.chance.below(self.tenant_last + 2));
        let t = self.world.tenants.get(&tenant);
        let lives = t.is_some_and(Tenant::lives);
        let inside = t.is_some_and(|t| t.lives() && t.admitted());
        let stage = t.map(|t| t.stage);
        let owned = Owned { tenant, handle: HandleId(NOBODY) };
        let request = RequestId(NOBODY);
        let event = match self.chance.below(22) {
            0 => Event::Claimed { owned, request, bytes: Bytes::from_gib(1) },
            1 => Event::Adopted { owned, movable: true },
            2 => Event::Pinned { owned, pinned: true },
            3 => Event::Copied { owned, clean: true },
            4 => Event::Returned { tenant, request },
            5 => Event::Freed { tenant, handles: vec![owned.handle] },
            6 => Event::Done { op: OpId(u64::MAX - 1), outcome: Outcome::Done { took: Span::ZERO } },
            7 if lives => Event::Buried(tenant),
            8 if lives => Event::Lingers(tenant),
            7 | 9 if !lives => Event::Left(tenant),
            10 if !inside => Event::Wants { tenant, ago: Span(self.chance.below(u64::MAX)) },
            11 if !inside => Event::Idle(tenant),
            12 if !inside => Event::Measured { tenant, busy: Ratio::ONE },
            13 if !inside => Event::Hint { tenant, within: Span::from_millis(1) },
            13 => Event::Warmed { tenant, at: self.world.now },
            14 if !inside => Event::Answers(tenant),
            15 if !inside || stage == Some(Stage::Context) => Event::Context { tenant, present: true },
            16 if stage != Some(Stage::Context) => Event::Context { tenant, present: false },
            17 => return self.bad_ask(tenant, inside),
            18 => Event::Unmanaged { gpu: GpuId(77), bytes: Bytes::from_gib(1) },
            21 if !inside => Event::GivesWay { tenant, gives_way: true },
            20 if !inside => Event::Residue { tenant, bytes: Bytes::from_gib(1) },
            19 => Event::Shares(tenant, TenantId(NOBODY)),
            _ => Event::Pause(JobId(NOBODY)),
        };
        self.tell(event);
    }

    /// A request of no size, of somebody who may not ask, or with a name that is taken.
    fn bad_ask(&mut self, tenant: TenantId, inside: bool) {
        let known = self.world.tenants.get(&tenant);
        let open =
            known.filter(|_| inside).and_then(|t| t.asks.keys().chain(t.grants.keys()).next().copied());
        let (request, bytes) = match open {
            Some(request) => (request, Bytes::from_mib(2)),
            None if inside => (RequestId(NOBODY), Bytes::ZERO),
            None => (RequestId(NOBODY), Bytes::from_mib(2)),
        };
        self.tell(Event::Ask { tenant, request, bytes });
    }
}
