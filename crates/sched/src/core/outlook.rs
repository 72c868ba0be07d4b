//! What those who wait may expect: their places, and about when they are next.

use super::Core;
use super::rehearse::Rehearsal;
use crate::policies;
use crate::tenant::{Grip, Phase, Tenant};
use crate::{Bytes, GpuId, Outlook, Span, TenantId, Time};
use std::collections::BTreeMap;

impl Core {
    /// What everybody who waits on a GPU may expect, by one look ahead of so many steps at most.
    pub fn outlook(&self, gpu: GpuId, now: Time, steps_max: usize) -> BTreeMap<TenantId, Outlook> {
        let Some(books) = self.gpus.get(gpu) else { return BTreeMap::new() };
        let mut all = self.outlook_at_door(gpu);
        let here = self.tenants.iter().filter(|(_, tenant)| tenant.gpu == gpu);
        let waiting: Vec<_> =
            here.filter(|(_, tenant)| self.waits_for_turn(tenant)).map(|(id, _)| id).collect();
        let forecasts = self.forecasts(gpu, &waiting, now, steps_max);
        // Of whom no more is known, those in line come after the others.
        let line = books.incoming.into_iter().chain(books.line.iter().map(|&(_, id)| id));
        let line: BTreeMap<_, _> = line.zip(0u32..).collect();
        let mut order: Vec<_> = waiting
            .iter()
            .filter(|id| forecasts.contains_key(id) || line.contains_key(id))
            .map(|&id| (forecasts.get(&id).copied().unwrap_or(Span::MAX), line.get(&id), id))
            .collect();
        order.sort_unstable();
        let places: BTreeMap<_, _> = order.into_iter().map(|(_, _, id)| id).zip(1u32..).collect();
        let of = waiting.len() as u32;
        all.extend(waiting.into_iter().map(|id| {
            let (place, forecast) = (places.get(&id).copied(), forecasts.get(&id).copied());
            (id, Outlook { place, of, forecast })
        }));
        all
    }

    /// How long until a tenant runs that waits for it, as far as can be said now.
    pub fn forecast(&self, id: TenantId, now: Time) -> Option<Span> {
        let tenant = self.tenants.get(id).filter(|tenant| self.waits_for_turn(tenant))?;
        self.forecasts(tenant.gpu, &[id], now, super::rehearse::STEPS_MAX).remove(&id)
    }

    /// How long until each of these runs, who wait for a turn on a GPU.
    fn forecasts(
        &self,
        gpu: GpuId,
        ids: &[TenantId],
        now: Time,
        steps_max: usize,
    ) -> BTreeMap<TenantId, Span> {
        // Where everybody runs to its end, nobody knows when whoever runs is done.
        if ids.is_empty() || policies::to_the_end(&self.settings) {
            return BTreeMap::new();
        }
        Rehearsal::new(self.around(gpu), now.max(self.now)).until_they_run(ids, steps_max)
    }

    /// Does a tenant wait for a turn?
    fn waits_for_turn(&self, tenant: &Tenant) -> bool {
        let could_run = tenant.phase == Phase::Here && tenant.context && !tenant.paused;
        could_run && self.gang_is_active(tenant) && tenant.grip != Grip::Thawed
    }

    /// The same at the door, where people's habits are all there is to go by.
    fn outlook_at_door(&self, gpu: GpuId) -> BTreeMap<TenantId, Outlook> {
        let books = self.gpu_of(gpu);
        let of = (books.arriving.len() + books.door.len()) as u32;
        let ahead = books.arriving.len() as u32;
        let arriving = books.arriving.iter().zip(1u32..).map(|(&id, place)| {
            (id, Outlook { place: Some(place), of, forecast: Some(self.until_there_is_room(gpu)) })
        });
        let queued = books.door.iter().zip(1u32..).map(|(&(_, _, id), place)| {
            (id, Outlook { place: Some(ahead + place), of, forecast: self.until_let_in(gpu, place) })
        });
        arriving.chain(queued).collect()
    }

    /// How long it takes to make room for the contexts that were let in.
    pub(super) fn until_there_is_room(&self, gpu: GpuId) -> Span {
        let short = self.gpu_of(gpu).short_of(Bytes::ZERO, self.settings.headroom);
        self.costs.freeze + self.costs.per_move + short.at(self.costs.out_per_second)
    }

    /// How long it usually takes until so many have left; None while nobody has.
    pub(super) fn until_let_in(&self, gpu: GpuId, place: u32) -> Option<Span> {
        let books = self.gpu_of(gpu);
        let known = books.stay > Span::ZERO && books.tenants > 0;
        known.then(|| Span(books.stay.0 / u64::from(books.tenants) * u64::from(place)))
    }
}
