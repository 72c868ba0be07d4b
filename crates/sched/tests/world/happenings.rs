//! What happens by chance: tenants come, work, grow, change and die; people and other programs interfere.

use super::life::Life;
use super::truth::{Place, Stage, Tenant};
use sched::{
    Bytes, Class, Event, GpuId, HandleId, JobId, Owned, PolicyKind, Priority, Ratio, RequestId, Settings,
    Span, TenantId, Terms, TicketId, UserId, WhenFull,
};

/// Tenants that live at the same time.
const TENANTS_MAX: usize = 14;
/// Jobs at the same time.
const JOBS_MAX: usize = 8;
/// Handles of one tenant.
const HANDLES_MAX: usize = 8;

impl Life {
    /// Something happens, if it can.
    pub(crate) fn happening(&mut self) {
        match self.chance.below(160) {
            0..10 => self.arrive(),
            10..22 => self.context(),
            22..36 => self.ask(),
            36..56 => self.claim(),
            56..76 => self.adopt(),
            76..90 => {
                // Mostly it is heard of at once.
                let ago = Span::from_micros(self.chance.below(3) * self.chance.below(300));
                self.tell_one(Stage::Context, |tenant| Event::Wants { tenant, ago });
            }
            90..97 => self.tell_one(Stage::Context, Event::Idle),
            97..104 => self.free(),
            104..106 => self.give_back(),
            106..109 => self.pin(),
            109..114 => self.copied(),
            114..118 => {
                let busy = Ratio::from_percent(self.chance.below(101) as u32);
                self.tell_one(Stage::Context, |tenant| Event::Measured { tenant, busy });
            }
            118..124 => self.hint(),
            124..128 => self.die(),
            128..138 => self.bury(),
            138..140 => self.change_terms(),
            140..143 => self.pause(),
            143..145 => self.outside(),
            145 => self.set(),
            146 => self.place(),
            147..149 => self.share(),
            149 => self.tell_one(Stage::Context, Event::Answers),
            150..152 => self.close_context(),
            152 => self.job_over(),
            153 => {
                let user = UserId(self.chance.below(3) as u32);
                let weight = 1 + self.chance.below(4) as u32;
                self.tell(Event::User { user, weight });
            }
            154 => self.swell(),
            155 => {
                let gives_way = self.chance.below(2) == 0;
                self.tell_one(Stage::Context, |tenant| Event::GivesWay { tenant, gives_way });
            }
            _ => self.nonsense(),
        }
    }

    /// Somebody living at this stage, or further.
    fn someone(&mut self, test: impl Fn(&Tenant) -> bool) -> Option<TenantId> {
        let them: Vec<TenantId> = self.world.living().filter(|(_, t)| test(t)).map(|(id, _)| id).collect();
        self.chance.of(&them)
    }

    fn tell_one(&mut self, stage: Stage, event: impl Fn(TenantId) -> Event) {
        if let Some(tenant) = self.someone(|t| t.stage == stage) {
            self.tell(event(tenant));
        }
    }

    fn terms(&mut self) -> Terms {
        let chance = &mut self.chance;
        let priorities =
            [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Idle];
        Terms {
            user: UserId(chance.below(3) as u32),
            weight: 1 + chance.below(4) as u32,
            class: if chance.percent(25) { Class::LatencyCritical } else { Class::BestEffort },
            priority: chance.of(&priorities).expect("some"),
            slo: chance.percent(30).then(|| Span::from_millis(5 + chance.below(500))),
            host_max: Bytes::ZERO,
            memory_max: chance.percent(30).then(|| chance.mib(2048, 16384)),
            compute_max: chance.percent(15).then(|| Ratio::from_percent(20 + chance.below(80) as u32)),
            when_full: if chance.percent(50) { WhenFull::Wait } else { WhenFull::Fail },
            gang: chance.percent(20),
            reserve: chance.percent(15),
        }
    }

    fn job(&mut self) -> Option<JobId> {
        if self.world.jobs.len() < JOBS_MAX && self.chance.percent(40) {
            self.job_last += 1;
            let (job, terms) = (JobId(self.job_last), self.terms());
            self.tell(Event::Job { job, terms });
        }
        let jobs: Vec<JobId> = self.world.jobs.keys().copied().collect();
        self.chance.of(&jobs)
    }

    fn a_gpu(&mut self) -> GpuId {
        GpuId(self.chance.below(self.world.gpus.len() as u64) as u16)
    }

    fn arrive(&mut self) {
        if self.world.living().count() >= TENANTS_MAX {
            return;
        }
        let Some(job) = self.job() else { return };
        self.tenant_last += 1;
        let (tenant, gpu) = (TenantId(self.tenant_last), self.a_gpu());
        // Some are larger than any GPU, and are refused.
        let residue = if self.chance.percent(2) { Bytes::from_gib(64) } else { self.chance.mib(300, 700) };
        self.tell(Event::Arrived { tenant, job, gpu, residue });
    }

    fn context(&mut self) {
        let gripped = |id: TenantId, life: &Self| {
            life.world.ops.values().any(|op| !op.overdue && op.grips() == Some(id))
        };
        let Some(tenant) = self.someone(|t| t.stage == Stage::Admitted) else { return };
        // Channels that come while others of the same tenant are being frozen are frozen with them.
        if !gripped(tenant, self) {
            self.tell(Event::Context { tenant, present: true });
        }
    }

    fn close_context(&mut self) {
        let Some(tenant) = self.someone(|t| t.stage == Stage::Context) else { return };
        let handles: Vec<HandleId> = self.world.tenants[&tenant].handles.keys().copied().collect();
        if !handles.is_empty() {
            self.tell(Event::Freed { tenant, handles });
        }
        self.tell(Event::Context { tenant, present: false });
    }

    fn number(&mut self, tenant: TenantId) -> u64 {
        let t = self.world.tenants.get_mut(&tenant).expect("a living tenant");
        t.next += 1;
        t.next
    }

    fn ask(&mut self) {
        let Some(tenant) = self.someone(|t| t.admitted() && t.handles.len() + t.asks.len() < HANDLES_MAX)
        else {
            return;
        };
        let request = RequestId(self.number(tenant));
        let most = self.chance.of(&[256, 1024, 1024, 4096, 16384]).expect("some");
        let bytes = self.chance.mib(2, most);
        self.tell(Event::Ask { tenant, request, bytes });
    }

    fn claim(&mut self) {
        let Some(tenant) = self.someone(|t| !t.grants.is_empty()) else { return };
        let grants: Vec<(RequestId, Bytes)> =
            self.world.tenants[&tenant].grants.iter().map(|(&request, &bytes)| (request, bytes)).collect();
        let (request, granted) = self.chance.of(&grants).expect("some");
        let part = self.chance.mib(2, 4096);
        let bytes = if self.chance.percent(33) { part.min(granted) } else { granted };
        let owned = Owned { tenant, handle: HandleId(self.number(tenant)) };
        self.tell(Event::Claimed { owned, request, bytes });
    }

    fn give_back(&mut self) {
        let Some(tenant) = self.someone(|t| !t.grants.is_empty()) else { return };
        let grants: Vec<RequestId> = self.world.tenants[&tenant].grants.keys().copied().collect();
        let request = self.chance.of(&grants).expect("some");
        self.tell(Event::Returned { tenant, request });
    }

    /// Some handle of which this is true.
    fn some_handle(&mut self, test: impl Fn(&super::truth::Handle) -> bool) -> Option<Owned> {
        let tenant = self.someone(|t| t.handles.values().any(&test))?;
        let handles = self.world.tenants[&tenant].handles.iter().filter(|(_, handle)| test(handle));
        let handles: Vec<HandleId> = handles.map(|(&handle, _)| handle).collect();
        Some(Owned { tenant, handle: self.chance.of(&handles)? })
    }

    fn adopt(&mut self) {
        let movable = !self.chance.percent(3);
        if let Some(owned) = self.some_handle(|handle| !handle.adopted) {
            self.tell(Event::Adopted { owned, movable });
        }
    }

    fn free(&mut self) {
        if let Some(owned) = self.some_handle(|_| true) {
            self.tell(Event::Freed { tenant: owned.tenant, handles: vec![owned.handle] });
        }
    }

    fn pin(&mut self) {
        let pinned = self.chance.percent(50);
        if let Some(owned) = self.some_handle(|handle| handle.pinned != pinned) {
            self.tell(Event::Pinned { owned, pinned });
        }
    }

    fn copied(&mut self) {
        let clean = self.chance.percent(60);
        let room = self.world.arena.less(self.world.arena_used());
        let can = |handle: &super::truth::Handle| {
            handle.adopted
                && handle.place == Place::Device
                && handle.clean != clean
                && (!clean || handle.bytes <= room)
        };
        let Some(owned) = self.some_handle(can) else { return };
        if !self.world.moving(owned.tenant) {
            self.tell(Event::Copied { owned, clean });
        }
    }

    fn hint(&mut self) {
        let critical: Vec<TenantId> = self
            .world
            .living()
            .filter(|(id, t)| t.stage == Stage::Context && self.world.critical(*id))
            .map(|(id, _)| id)
            .collect();
        let within = self.chance.of(&[0, 500, 1_000, 3_000, 20_000]).expect("some");
        if let Some(tenant) = self.chance.of(&critical) {
            let within = Span::from_micros(within);
            self.tell(Event::Warmed { tenant, at: self.world.now.before(within) });
            self.tell(Event::Hint { tenant, within });
        }
    }

    fn die(&mut self) {
        let ending = self.someone(|t| t.ending);
        let anybody = self.someone(|_| true);
        if let Some(tenant) = ending.or(anybody) {
            self.tell(Event::Left(tenant));
        }
    }

    fn bury(&mut self) {
        let gone: Vec<TenantId> =
            self.world.tenants.iter().filter(|(_, t)| !t.lives()).map(|(&id, _)| id).collect();
        let Some(tenant) = self.chance.of(&gone) else { return };
        if self.chance.percent(15) {
            self.tell(Event::Lingers(tenant));
        } else if self.can_bury(tenant) {
            self.world.settle_overdue_of(tenant);
            self.tell(Event::Buried(tenant));
        }
    }

    fn change_terms(&mut self) {
        let jobs: Vec<JobId> = self.world.jobs.keys().copied().collect();
        if let Some(job) = self.chance.of(&jobs) {
            let terms = self.terms();
            self.tell(Event::Job { job, terms });
        }
    }

    fn pause(&mut self) {
        let jobs: Vec<(JobId, bool)> = self.world.jobs.iter().map(|(&id, job)| (id, job.paused)).collect();
        if let Some((job, paused)) = self.chance.of(&jobs)
            && (paused || self.chance.percent(40))
        {
            if self.chance.percent(30) {
                let deep = !paused;
                self.tell(Event::Deep { job, deep });
            }
            self.tell(if paused { Event::Resume(job) } else { Event::Pause(job) });
        }
    }

    /// Other programs come and go, the host has more or less memory to spare.
    fn outside(&mut self) {
        if self.chance.percent(40) {
            let arena = self.chance.mib(4 << 10, 64 << 10);
            self.tell(Event::Arena(arena));
        } else {
            let gpu = self.a_gpu();
            let bytes = if self.chance.percent(50) { Bytes::ZERO } else { self.chance.mib(0, 6 << 10) };
            self.tell(Event::Unmanaged { gpu, bytes });
            self.tell(Event::Strangers { gpu, present: bytes > Bytes::ZERO });
        }
    }

    /// A context takes more than before, or less, but never so much that somebody would have no room any more.
    fn swell(&mut self) {
        let Some(tenant) = self.someone(Tenant::admitted) else { return };
        let t = &self.world.tenants[&tenant];
        let most = t.residue + self.world.spare(t.gpu);
        let bytes = self.chance.mib(0, 1 << 10).min(most);
        self.tell(Event::Residue { tenant, bytes });
    }

    fn set(&mut self) {
        let policies = [PolicyKind::Fair, PolicyKind::Priority, PolicyKind::Deadline, PolicyKind::Serial];
        let settings = Settings {
            policy: self.chance.of(&policies).expect("some"),
            headroom: self.chance.mib(0, 512),
            overcommit_max: Ratio::from_percent(100 + self.chance.below(500) as u32),
            ..self.world.settings.clone()
        };
        self.tell(Event::Settings(Box::new(settings)));
    }

    fn place(&mut self) {
        let Some(job) = self.job() else { return };
        self.ticket_last += 1;
        let count = 1 + self.chance.below(3) as u16;
        let among = if self.chance.percent(50) { Vec::new() } else { vec![self.a_gpu()] };
        let bytes = self.chance.mib(0, 8 << 10);
        self.tell(Event::Place {
            ticket: TicketId(self.ticket_last),
            job,
            count,
            among,
            bytes,
            residue: None,
        });
    }

    fn share(&mut self) {
        let one = self.someone(|t| t.admitted());
        let other = self.someone(|t| t.admitted());
        if let (Some(one), Some(other)) = (one, other) {
            self.tell(Event::Shares(one, other));
        }
    }

    fn job_over(&mut self) {
        let over = |job: &JobId| !self.world.living().any(|(_, t)| t.job == *job);
        let jobs: Vec<JobId> = self.world.jobs.keys().copied().filter(over).collect();
        if let Some(job) = self.chance.of(&jobs) {
            self.tell(Event::JobOver(job));
        }
    }
}
