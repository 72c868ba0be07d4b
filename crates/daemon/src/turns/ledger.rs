//! The ledger: who holds, has been granted and asks for which bytes. Part of the pure core.

use super::member::{Held, Member};
use super::{Members, Now, Owned, Rules, STUCK_FOR, Shifted};
use std::collections::BTreeMap;
use wire::{BLOCK_BYTES, GrantId, HandleId, SizedHandle, TenantId};

/// Requests of one tenant at a time: one for each of its threads that allocates.
const REQUESTS_MAX: usize = 4096;

#[derive(Debug)]
struct Departed {
    bytes: u64,
    /// It hung up and lives: nobody knows for how long.
    lingers: bool,
}

/// All members, and the sizes they share.
#[derive(Debug)]
pub(super) struct Ledger {
    members: Members,
    /// Device bytes of tenants that left, until the driver has given them back.
    departed: BTreeMap<TenantId, Departed>,
    capacity_bytes: u64,
    reserve_bytes: u64,
    residue_bytes: u64,
    arena_bytes: u64,
}

impl Ledger {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            members: Members::new(),
            departed: BTreeMap::new(),
            capacity_bytes: rules.capacity_bytes,
            reserve_bytes: rules.reserve_bytes,
            residue_bytes: rules.residue_bytes,
            arena_bytes: rules.arena_bytes,
        }
    }

    pub(super) fn member(&self, tenant: TenantId) -> Option<&Member> {
        self.members.get(&tenant)
    }

    /// Those who take turns, in their order.
    pub(super) fn ring(&self) -> Vec<TenantId> {
        self.members.iter().filter(|(_, member)| member.takes_turns()).map(|(&tenant, _)| tenant).collect()
    }

    /// Those who take turns and are not frozen.
    pub(super) fn thawed(&self) -> impl Iterator<Item = TenantId> {
        self.members.iter().filter(|(_, member)| member.takes_turns() && member.thawed).map(|(&t, _)| t)
    }

    /// Device bytes in use: handles, grants and contexts. The daemon's own reserve is not among them.
    pub(super) fn used_bytes(&self) -> u64 {
        let contexts =
            self.members.values().filter(|member| member.welcomed).count() as u64 * self.residue_bytes;
        contexts + self.held_bytes() + self.departed_bytes(true)
    }

    /// Device bytes that could be granted now.
    pub(super) fn room_bytes(&self) -> u64 {
        self.usable_bytes().saturating_sub(self.held_bytes())
    }

    /// Would everybody still fit beside one more context: one at a time on the device, and all together in device and
    /// arena?
    pub(super) fn admits(&self) -> Result<(), String> {
        let usable = self.usable_bytes().saturating_sub(self.residue_bytes);
        let whole = |member: &Member| member.all_bytes() + member.asked_bytes();
        if usable == 0 {
            return Err("there is no room on the GPU for one more context".into());
        }
        if let Some((tenant, member)) = self.members.iter().find(|(_, member)| whole(member) > usable) {
            return Err(format!(
                "one more context would leave {} MiB of the GPU, but tenant {tenant} has {} MiB",
                usable >> 20,
                whole(member) >> 20
            ));
        }
        self.takes_turns_within(usable, 0)
    }

    /// Could what everybody has, and so much more in one piece, take turns with so much of the device? With device and
    /// arena both full nothing could move any more: two of the largest pieces must always find a place.
    fn takes_turns_within(&self, usable: u64, more: u64) -> Result<(), String> {
        let everybody: u64 =
            self.members.values().map(|member| member.all_bytes() + member.asked_bytes()).sum();
        let together = everybody.saturating_add(more);
        let largest = self.members.values().map(Member::largest_bytes).max().unwrap_or(0).max(more);
        let slack = largest.saturating_mul(2);
        if together > usable && together.saturating_add(slack) > usable + self.arena_bytes {
            return Err(format!(
                "all programs together would have {:.2} GiB, too much to take turns with {:.2} GiB of GPU and {:.2} GiB \
                 of arena",
                gib(together),
                gib(usable),
                gib(self.arena_bytes)
            ));
        }
        Ok(())
    }

    pub(super) fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// When the next handle that could not go out may be tried again.
    pub(super) fn unstuck_at(&self, after: Now) -> Option<Now> {
        let handles = self.members.values().flat_map(|member| member.handles.values());
        handles.map(|held| held.stuck_until).filter(|&at| at > after).min()
    }

    /// Lets those in who wait at the door, if there is room for their contexts besides what is spoken for.
    pub(super) fn welcome_who_fits(&mut self, spoken_for: u64) -> Vec<TenantId> {
        if self.held_bytes() + spoken_for > self.usable_bytes() {
            return Vec::new();
        }
        let waiting = self.members.iter_mut().filter(|(_, member)| !member.welcomed);
        waiting
            .map(|(&tenant, member)| {
                member.welcomed = true;
                tenant
            })
            .collect()
    }

    #[cfg(test)]
    pub(super) fn welcomed(&self) -> u64 {
        self.members.values().filter(|member| member.welcomed).count() as u64
    }

    /// Device bytes that are held beyond what is usable: a newcomer's context has made the rest smaller.
    pub(super) fn over_bytes(&self) -> u64 {
        self.held_bytes().saturating_sub(self.usable_bytes())
    }

    /// No turn for this one before then.
    pub(super) fn postpone(&mut self, tenant: TenantId, until: Now) {
        if let Some(member) = self.members.get_mut(&tenant) {
            member.not_before = until;
        }
    }

    pub(super) fn join(&mut self, tenant: TenantId, now: Now) {
        let member = Member { thawed: true, since: now, ..Member::default() };
        assert!(self.members.insert(tenant, member).is_none(), "tenant {tenant} joined twice");
    }

    pub(super) fn leave(&mut self, tenant: TenantId) {
        if let Some(member) = self.members.remove(&tenant) {
            let held = member.resident_bytes() + member.granted_bytes() + self.residue_bytes;
            self.departed.insert(tenant, Departed { bytes: held, lingers: false });
        }
    }

    pub(super) fn bury(&mut self, tenant: TenantId) {
        self.departed.remove(&tenant);
    }

    pub(super) fn linger(&mut self, tenant: TenantId) {
        if let Some(departed) = self.departed.get_mut(&tenant) {
            departed.lingers = true;
        }
    }

    /// Is somebody dying whose memory will be free in a moment?
    pub(super) fn burials_pending(&self) -> bool {
        self.departed.values().any(|departed| !departed.lingers)
    }

    pub(super) fn set_context(&mut self, tenant: TenantId, present: bool, now: Now) {
        if let Some(member) = self.members.get_mut(&tenant) {
            if present && !member.context {
                member.since = now;
            }
            member.context = present;
        }
    }

    /// Notes a request, or says why it can never be granted.
    pub(super) fn ask(&mut self, tenant: TenantId, grant: GrantId, bytes: u64) -> Result<(), String> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(format!("{bytes} bytes were asked for, which is not a multiple of {BLOCK_BYTES}"));
        }
        let usable = self.usable_bytes();
        let Some(member) = self.members.get(&tenant) else {
            return Err("the tenant is not known".into());
        };
        if member.asked.contains_key(&grant) || member.granted.contains_key(&grant) {
            return Err("a request with the number of another one".into());
        }
        if member.asked.len() >= REQUESTS_MAX {
            return Err(format!("{REQUESTS_MAX} requests are waiting already"));
        }
        let own = member.all_bytes() + member.asked_bytes();
        if own.saturating_add(bytes) > usable {
            return Err(format!(
                "{:.2} GiB more than the {:.2} GiB it has would not fit on the GPU, of which {:.2} GiB are usable",
                gib(bytes),
                gib(own),
                gib(usable)
            ));
        }
        self.takes_turns_within(usable, bytes)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            member.asked.insert(grant, bytes);
        }
        Ok(())
    }

    /// The size of these handles together.
    pub(super) fn bytes_of(&self, handles: &[Owned]) -> u64 {
        let held = |owned: &Owned| self.members.get(&owned.tenant)?.handles.get(&owned.handle);
        handles.iter().filter_map(held).map(|held| held.bytes).sum()
    }

    /// Grants requests while there is room besides what is spoken for, those of the runner before the others'. Once
    /// anybody's memory is away, only the runner grows: what others got now would have to go before their turn.
    pub(super) fn grant_what_fits(
        &mut self,
        runner: Option<TenantId>,
        spoken_for: u64,
    ) -> Vec<(TenantId, GrantId)> {
        let mut room = self.room_bytes().saturating_sub(spoken_for);
        let mut granted = Vec::new();
        let crowded = self.members.values().any(|member| member.away_bytes() > 0);
        let others = self.members.keys().copied().filter(|&tenant| !crowded && Some(tenant) != runner);
        for tenant in runner.into_iter().chain(others).collect::<Vec<_>>() {
            let Some(member) = self.members.get_mut(&tenant) else { continue };
            // In the order they were asked; one that does not fit holds back the later ones, or it would starve.
            while let Some((&grant, &bytes)) = member.asked.first_key_value() {
                if bytes > room {
                    break;
                }
                room -= bytes;
                member.asked.remove(&grant);
                member.granted.insert(grant, bytes);
                granted.push((tenant, grant));
            }
        }
        granted
    }

    /// A grant becomes a handle, which cannot be moved before it is adopted.
    pub(super) fn claim(
        &mut self,
        tenant: TenantId,
        grant: GrantId,
        handle: SizedHandle,
    ) -> Result<(), &'static str> {
        let member = self.members.get_mut(&tenant).ok_or("the tenant is not known")?;
        if member.handles.contains_key(&handle.handle) {
            return Err("it named a handle twice");
        }
        if member.granted.get(&grant) != Some(&handle.bytes) {
            return Err("it used a grant that it does not have, or not of that size");
        }
        member.granted.remove(&grant);
        let held = Held { bytes: handle.bytes, away: false, movable: false, stuck_until: Now::ZERO };
        member.handles.insert(handle.handle, held);
        Ok(())
    }

    pub(super) fn adopted(&mut self, tenant: TenantId, handle: HandleId, movable: bool) {
        if let Some(held) = self.held_mut(&Owned { tenant, handle }) {
            held.movable = movable;
        }
    }

    pub(super) fn set_arena(&mut self, bytes: u64) {
        self.arena_bytes = bytes;
    }

    pub(super) fn returned(&mut self, tenant: TenantId, grant: GrantId) {
        if let Some(member) = self.members.get_mut(&tenant) {
            member.granted.remove(&grant);
        }
    }

    pub(super) fn freed(&mut self, handles: &[Owned]) {
        for owned in handles {
            if let Some(member) = self.members.get_mut(&owned.tenant) {
                member.handles.remove(&owned.handle);
            }
        }
    }

    /// How things are after a shift. The mover's word on where handles are is taken over as a whole: a late answer may have
    /// changed more than the shift was about.
    pub(super) fn apply(&mut self, done: &Shifted, now: Now) {
        for (&tenant, member) in &mut self.members {
            for (&handle, held) in &mut member.handles {
                held.away = done.away.contains(&Owned { tenant, handle });
            }
        }
        for tenant in &done.froze {
            if let Some(member) = self.members.get_mut(tenant) {
                member.thawed = false;
                member.since = now;
            }
        }
        if let Some(member) = done.thawed.and_then(|tenant| self.members.get_mut(&tenant)) {
            member.thawed = true;
        }
        for owned in &done.stuck {
            if let Some(held) = self.held_mut(owned) {
                held.stuck_until = now + STUCK_FOR;
            }
        }
    }

    fn held_mut(&mut self, owned: &Owned) -> Option<&mut Held> {
        self.members.get_mut(&owned.tenant)?.handles.get_mut(&owned.handle)
    }

    pub(super) fn count_turn(&mut self, tenant: TenantId) {
        if let Some(member) = self.members.get_mut(&tenant) {
            member.turns += 1;
        }
    }

    /// What always holds.
    pub(super) fn check(&self) {
        for (tenant, member) in &self.members {
            assert!(
                !member.thawed || member.away_bytes() == 0,
                "tenant {tenant} is thawed with {} bytes away",
                member.away_bytes()
            );
        }
    }

    /// Whoever has joined will make a context, so its residue counts from the start.
    fn residues(&self) -> u64 {
        self.residue_bytes * self.members.len() as u64
    }

    /// Handles and grants, and what the dying still hold for a moment.
    fn held_bytes(&self) -> u64 {
        let living: u64 =
            self.members.values().map(|member| member.resident_bytes() + member.granted_bytes()).sum();
        living + self.departed_bytes(false)
    }

    /// What handles and grants may take: the rest is for contexts, and for those who hung up and live.
    fn usable_bytes(&self) -> u64 {
        let taken = self.reserve_bytes + self.residues() + self.departed_bytes(true);
        self.capacity_bytes.saturating_sub(taken)
    }

    fn departed_bytes(&self, lingers: bool) -> u64 {
        self.departed
            .values()
            .filter(|departed| departed.lingers == lingers)
            .map(|departed| departed.bytes)
            .sum()
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}
