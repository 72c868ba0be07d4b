//! The door: who is let in, who waits there and for how long. Also where a job should go.

use super::{Core, roster};
use crate::job::Gang;
use crate::placement::{self, Seat};
use crate::pressure::Pressure;
use crate::tenant::{Phase, Tenant};
use crate::{Action, Bytes, Class, GpuId, JobId, Short, TenantId, TicketId, Time};

/// Tenants at one door.
const DOOR_MAX: usize = 4_096;

impl Core {
    pub(super) fn arrive(&mut self, id: TenantId, job: JobId, gpu: GpuId, residue: Bytes) {
        let limit = self.jobs.get(job).and_then(|job| job.terms.memory_max);
        let refusal = match self.gpus.get(gpu) {
            None => Some(Short::Unknown),
            _ if !self.jobs.contains(job) => Some(Short::Unknown),
            _ if self.tenants.get(id).is_some() || id.0 > roster::NUMBER_MAX => Some(Short::Malformed),
            Some(books) if books.has_departed(id) => Some(Short::Malformed),
            Some(books) if books.door.len() >= DOOR_MAX => Some(Short::Tenants),
            _ if limit.is_some_and(|limit| residue > limit) => {
                limit.map(|limit| Short::Limit { wanted: residue, limit })
            }
            Some(books) => {
                let usable = books.spec.capacity.less(books.spec.reserve + self.settings.headroom);
                (residue >= usable).then_some(Short::Device { wanted: residue, usable })
            }
        };
        if let Some(why) = refusal {
            self.actions.push(Action::Refuse { tenant: id, why });
            return;
        }
        let tenant = Tenant::new(job, gpu, residue, self.now);
        let key = self.enrol(id, tenant);
        self.gpu_mut(gpu).door.insert(key);
        self.concerned.insert(gpu);
        // Let in at once, it hears nothing of a door.
        self.open_door(gpu);
        self.tell_the_door(gpu, Some(id));
        if self.tenants.get(id).is_some_and(|tenant| tenant.phase == Phase::Arriving) {
            let forecast = Some(self.until_there_is_room(gpu));
            self.actions.push(Action::Queue { tenant: id, place: 1, forecast, why: Short::Context });
        }
    }

    /// Puts a new tenant on the books of a job and a GPU that are there. Says what its place at the door would be.
    pub(super) fn enrol(&mut self, id: TenantId, mut tenant: Tenant) -> (u8, Time, TenantId) {
        let (job, gpu) = (tenant.job, tenant.gpu);
        if let Some(owner) = self.jobs.get_mut(job) {
            owner.members.insert(id);
            tenant.heed(&owner.terms);
            tenant.paused = owner.paused;
            tenant.critical = owner.class == Class::LatencyCritical;
        }
        tenant.virtual_time = self.gpu_of(gpu).present;
        let key = door_key(id, &tenant);
        self.book(id, tenant);
        if self.jobs.get(job).is_some_and(|job| job.gang == Gang::Apart) {
            // One that was alone so far is of a gang from here on, and gets its turns as one.
            self.part(job);
        }
        key
    }

    /// Changes a tenant that may be at the door, and its place there.
    pub(super) fn rearrange_door(&mut self, id: TenantId, change: impl FnOnce(&mut Tenant)) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (gpu, before) = (tenant.gpu, door_key(id, tenant));
        self.update(id, change);
        let Some(tenant) = self.tenants.get(id) else { return };
        let after = door_key(id, tenant);
        let books = self.gpu_mut(gpu);
        if before != after && books.door.remove(&before) {
            books.door.insert(after);
        }
    }

    /// Lets in who may come, and tells those who got room for their context.
    pub(super) fn open_door(&mut self, gpu: GpuId) {
        let mut opened = false;
        while let Some(key) = self.next_at_door(gpu) {
            self.gpu_mut(gpu).door.remove(&key);
            self.update(key.2, |tenant| tenant.phase = Phase::Arriving);
            opened = true;
        }
        if opened {
            self.tell_the_door(gpu, None);
        }
        let headroom = self.settings.headroom;
        while let Some(&id) = self.gpu_of(gpu).arriving.first() {
            let books = self.gpu_of(gpu);
            if books.short_of(Bytes::ZERO, headroom) > Bytes::ZERO {
                break;
            }
            if self.is_beyond_limit(gpu, id) {
                // Its job may have less than before: it waits at the door again.
                self.update(id, |tenant| tenant.phase = Phase::Queued);
                if let Some(key) = self.tenants.get(id).map(|tenant| door_key(id, tenant)) {
                    self.gpu_mut(gpu).door.insert(key);
                }
                continue;
            }
            let now = self.now;
            self.update(id, |tenant| {
                tenant.phase = Phase::Here;
                tenant.since = now;
            });
            self.actions.push(Action::Admit { tenant: id });
        }
    }

    /// The first at the door, if it may come in. Whoever waits only for its own job keeps nobody else waiting.
    fn next_at_door(&self, gpu: GpuId) -> Option<(u8, Time, TenantId)> {
        for &key in &self.gpu_of(gpu).door {
            let why = self.tenants.get(key.2).and_then(|tenant| self.why_not(gpu, tenant));
            match why {
                None => return Some(key),
                Some(Short::Limit { .. }) => {}
                Some(_) => return None,
            }
        }
        None
    }

    /// Has the job of one who is on its way in more than it may have?
    fn is_beyond_limit(&self, gpu: GpuId, id: TenantId) -> bool {
        let job = self.tenants.get(id).and_then(|tenant| self.jobs.get(tenant.job));
        job.is_some_and(|job| job.terms.memory_max.is_some_and(|limit| job.here(gpu).bytes > limit))
    }

    /// Why one more context may not come now.
    fn why_not(&self, gpu: GpuId, tenant: &Tenant) -> Option<Short> {
        let (books, residue) = (self.gpu_of(gpu), tenant.residue);
        if let Some(job) = self.jobs.get(tenant.job)
            && let Some(limit) = job.terms.memory_max
        {
            let wanted = job.here(gpu).bytes + residue;
            if wanted > limit {
                return Some(Short::Limit { wanted, limit });
            }
        }
        if books.tenants >= self.settings.tenants_max {
            return Some(Short::Tenants);
        }
        if self.pressure >= Pressure::Closed {
            return Some(Short::Pressure);
        }
        let usable = books.usable(self.settings.headroom);
        if usable <= residue || books.largest() > usable.less(residue) {
            return Some(Short::Context);
        }
        self.too_much(gpu, usable.less(residue), Bytes::ZERO)
    }

    /// Tells those at the door their places: all of them when it moved, or the one who came.
    fn tell_the_door(&mut self, gpu: GpuId, only: Option<TenantId>) {
        let books = self.gpu_of(gpu);
        let mut said = Vec::new();
        for (place, &(_, _, id)) in (1u32..).zip(&books.door) {
            let Some(tenant) = self.tenants.get(id).filter(|_| only.is_none_or(|only| only == id)) else {
                continue;
            };
            let why = self.why_not(gpu, tenant).unwrap_or(Short::Context);
            let forecast = self.until_let_in(gpu, place);
            said.push(Action::Queue { tenant: id, place, forecast, why });
        }
        self.actions.extend(said);
    }

    pub(super) fn place(
        &mut self,
        ticket: TicketId,
        job: JobId,
        (count, among): (u16, &[GpuId]),
        bytes: Bytes,
        residue: Option<Bytes>,
    ) {
        let closed = self.pressure >= Pressure::Closed;
        let seats: Vec<Seat> = self
            .gpus
            .iter()
            .map(|(gpu, books)| (gpu, books, self.expected_on(gpu)))
            .map(|(gpu, books, (coming, coming_bytes))| Seat {
                gpu,
                // What stays on the device is not to be had by anybody who comes.
                usable: books.usable(self.settings.headroom).less(books.pinned),
                held: books.everything().less(books.pinned) + coming_bytes,
                tenants: books.tenants,
                coming,
                tenants_max: self.settings.tenants_max,
                busy: books.active,
                numa: books.spec.numa,
                links: books.spec.links.clone(),
                closed,
                queued: books.door.len() as u32,
            })
            .collect();
        let residue = residue.unwrap_or_else(|| self.residue());
        let (gpus, why) = match placement::place(&seats, count, among, bytes, residue, &self.costs) {
            Ok(found) => found,
            Err(why) => (Vec::new(), why),
        };
        self.expect(job, &gpus, bytes + residue);
        self.actions.push(Action::Place { ticket, job, gpus, why });
    }

    /// What a context takes, going by those that are there.
    fn residue(&self) -> Bytes {
        let counted = self.gpus.values().map(|books| (books.residues.0, u64::from(books.tenants)));
        let (bytes, tenants) = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        bytes.checked_div(tenants).map_or(self.settings.context, Bytes)
    }
}

/// Its place at the door: by priority, then in the order in which they came.
pub(super) fn door_key(id: TenantId, tenant: &Tenant) -> (u8, Time, TenantId) {
    (tenant.priority as u8, tenant.arrived, id)
}
