//! Memory that tenants let other processes of the same user open: which, by which token, and who has it open.
//!
//! The owner pays. What it frees while others have it open stays on its books until the last of them has closed it, because
//! until then the driver keeps it. What a dead owner leaves to others is nobody's: it counts as memory outside of rota.

use super::Daemon;
use sched::{Bytes, Event, GpuId, HandleId, Owned, RequestId, TenantId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::{FILES_MAX, FromDaemon, GrantId, SizedHandle, Token};

/// Files for memory that one tenant published. A publication has one for each handle.
const FILES_OF_ONE_MAX: usize = 4096;

/// The same of all tenants together: they are open in the daemon.
const FILES_OF_ALL_MAX: usize = 16_384;

/// What one user may have of that, and of the files that the daemon may open at all.
const SHARE_OF_A_USER: usize = 4;

/// Publications of one tenant.
const PUBLICATIONS_MAX: usize = 4096;

/// What a tenant wants to publish, or part of it.
#[derive(Debug)]
pub struct Publish {
    /// Its name for the request.
    pub request: RequestId,
    /// The name for others.
    pub token: Token,
    /// What, in the order of addresses.
    pub handles: Vec<SizedHandle>,
    /// A file for each.
    pub files: Vec<OwnedFd>,
    /// Is this the last part?
    pub complete: bool,
}

/// A handle that others may open.
#[derive(Debug)]
struct Part {
    handle: HandleId,
    bytes: Bytes,
    /// None once nobody may open it any more.
    file: Option<Arc<OwnedFd>>,
    /// Its owner has freed it.
    freed: bool,
}

#[derive(Debug)]
struct Publication {
    owner: TenantId,
    uid: u32,
    gpu: GpuId,
    parts: Vec<Part>,
    /// Can it be opened?
    open: bool,
    /// Something was wrong with a part of it, and the owner is told after the last.
    wrong: Option<&'static str>,
    /// Its owner is gone.
    orphaned: bool,
    /// Who has it open, how often.
    openers: BTreeMap<TenantId, u64>,
}

impl Publication {
    fn bytes(&self) -> Bytes {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Nobody opens it from now on.
    fn withdraw(&mut self) {
        self.open = false;
        for part in &mut self.parts {
            part.file = None;
        }
    }
}

/// Whether none of these is there twice, or was there before.
fn are_new(handles: &[SizedHandle], before: Option<&Publication>) -> bool {
    let before = before.iter().flat_map(|one| &one.parts).map(|part| part.handle.0);
    let mut seen: BTreeSet<u64> = before.collect();
    handles.iter().all(|one| seen.insert(one.handle.0))
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Publications {
    all: BTreeMap<Token, Publication>,
    /// What dead owners left to others, on each GPU.
    orphans: BTreeMap<GpuId, Bytes>,
}

impl Publications {
    /// Files that are open for what is published.
    fn files(&self, of: impl Fn(&Publication) -> bool) -> usize {
        let parts = self.all.values().filter(|one| of(one)).flat_map(|one| &one.parts);
        parts.filter(|part| part.file.is_some()).count()
    }

    /// Whether a tenant has anything of others open.
    pub(super) fn is_opener(&self, tenant: TenantId) -> bool {
        self.all.values().any(|one| one.openers.contains_key(&tenant))
    }

    /// Whether a tenant of a user has so many more files.
    fn have_room(&self, tenant: TenantId, uid: u32, more: usize) -> bool {
        let open_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let all_max = open_max.map_or(FILES_OF_ALL_MAX, |most| FILES_OF_ALL_MAX.min(most as usize / 2));
        self.files(|one| one.owner == tenant) + more <= FILES_OF_ONE_MAX
            && self.files(|one| one.uid == uid) + more <= all_max / SHARE_OF_A_USER
            && self.files(|_| true) + more <= all_max
    }
}

impl Daemon {
    fn uid_of(&self, tenant: TenantId) -> Option<u32> {
        Some(self.jobs.get(self.jobs.of(tenant)?)?.uid)
    }

    pub(super) fn publish(&mut self, tenant: TenantId, publish: Publish) {
        let Publish { request, token, handles, files, complete } = publish;
        let (Some(uid), Some(known)) = (self.uid_of(tenant), self.known.get(&tenant)) else { return };
        let stays = |one: &SizedHandle| {
            let handle = HandleId(one.handle.0);
            let known_bytes = self.core.handle_bytes(Owned { tenant, handle });
            known.pins.has(handle) && known_bytes == Some(Bytes(one.bytes))
        };
        let found = self.publications.all.get(&token);
        let wrong = match () {
            () if found.is_some_and(|found| found.open || found.owner != tenant || found.orphaned) => {
                return self.deny(tenant, request, "something else is published by that name".into());
            }
            () if !handles.iter().all(stays) => Some("memory is to be published that is not pinned"),
            () if !are_new(&handles, found) => Some("a handle is to be published twice by one name"),
            () if !self.publications.have_room(tenant, uid, files.len()) => {
                Some("more is published than the daemon has files for")
            }
            () => None,
        };
        let gpu = known.gpu;
        let theirs = self.publications.all.values().filter(|found| found.owner == tenant).count();
        if theirs >= PUBLICATIONS_MAX && !self.publications.all.contains_key(&token) {
            return match complete {
                true => self.deny(tenant, request, "it has published too much already".into()),
                false => self.put_out(tenant, "it publishes without an end"),
            };
        }
        let publication = self.publications.all.entry(token).or_insert_with(|| Publication {
            owner: tenant,
            uid,
            gpu,
            parts: Vec::new(),
            open: false,
            wrong: None,
            orphaned: false,
            openers: BTreeMap::new(),
        });
        publication.wrong = publication.wrong.or(wrong);
        if wrong.is_none() {
            publication.parts.extend(handles.iter().zip(files).map(|(one, file)| Part {
                handle: HandleId(one.handle.0),
                bytes: Bytes(one.bytes),
                file: Some(Arc::new(file)),
                freed: false,
            }));
        }
        if !complete {
            return;
        }
        match publication.wrong {
            None => {
                publication.open = true;
                let bytes = publication.bytes().0;
                self.note("published", tenant, json!({ "bytes": bytes }));
                self.say(tenant, FromDaemon::Published { request: GrantId(request.0) });
                self.name_has_come(token);
            }
            Some(wrong) => {
                self.publications.all.remove(&token);
                self.deny(tenant, request, wrong.into());
            }
        }
    }

    /// Gives a tenant what another one published.
    pub(super) fn open_published(&mut self, tenant: TenantId, request: RequestId, token: Token) {
        let uid = self.uid_of(tenant);
        let found = self.publications.all.get_mut(&token).filter(|found| found.open);
        // Whoever is of another user learns no more than that there is nothing for it.
        let Some(found) = found.filter(|found| Some(found.uid) == uid) else {
            if self.awaited_names.wait(tenant, request, token) {
                return;
            }
            return self.deny(tenant, request, "nothing is published by that name".into());
        };
        let owner = found.owner;
        let opened: Vec<_> = found.parts.iter().map(|part| (part.bytes.0, part.file.clone())).collect();
        *found.openers.entry(tenant).or_default() += 1;
        let Some(known) = self.known.get(&tenant) else { return };
        let request = GrantId(request.0);
        let batches = opened.chunks(FILES_MAX).count();
        for (number, batch) in (1..).zip(opened.chunks(FILES_MAX)) {
            let sizes = batch.iter().map(|(bytes, _)| *bytes).collect();
            let files = batch.iter().filter_map(|(_, file)| file.clone()).collect();
            let message = FromDaemon::Opened { request, sizes, complete: number == batches };
            let _ = known.link.outgoing.send_with(message, files);
        }
        self.note("shares", tenant, json!({ "owner": owner.0 }));
        self.step(Event::Shares(owner, tenant));
    }

    /// A tenant has closed what it had opened. What it had not is passed over.
    pub(super) fn close_published(&mut self, tenant: TenantId, token: Token) {
        let found = self.publications.all.get_mut(&token);
        let Some(found) = found.filter(|found| found.openers.contains_key(&tenant)) else {
            return self.close_awaited(tenant, token);
        };
        let Some(count) = found.openers.get_mut(&tenant) else { return };
        *count -= 1;
        if *count == 0 {
            found.openers.remove(&tenant);
            self.settle_publication(token);
        }
    }

    /// Of handles that their owner has freed, those that count as free now: what others have open does not yet.
    pub(super) fn free_published(&mut self, tenant: TenantId, handles: Vec<HandleId>) -> Vec<HandleId> {
        let freed: BTreeSet<_> = handles.iter().copied().collect();
        let (mut concerned, mut lent) = (Vec::new(), BTreeSet::new());
        for (&token, found) in self.publications.all.iter_mut().filter(|(_, found)| found.owner == tenant) {
            let is_open = !found.openers.is_empty();
            for part in found.parts.iter_mut().filter(|part| freed.contains(&part.handle)) {
                if is_open {
                    part.freed = true;
                    lent.insert(part.handle);
                }
                concerned.push(token);
            }
        }
        concerned.dedup();
        for token in concerned {
            if let Some(found) = self.publications.all.get_mut(&token) {
                found.withdraw();
            }
            self.settle_publication(token);
        }
        handles.into_iter().filter(|handle| !lent.contains(handle)).collect()
    }

    /// Forgets a publication that nobody can open and nobody has open.
    fn settle_publication(&mut self, token: Token) {
        let Some(found) = self.publications.all.get(&token) else { return };
        if found.open || !found.openers.is_empty() {
            return;
        }
        let Some(found) = self.publications.all.remove(&token) else { return };
        if found.orphaned {
            let left = self.orphans(found.gpu).less(found.bytes());
            return self.count_orphans(found.gpu, left);
        }
        // Others may have the same memory open by another name.
        let lent = |handle: HandleId| {
            let others = self.publications.all.values().filter(|other| other.owner == found.owner);
            others.flat_map(|other| &other.parts).any(|part| part.handle == handle && part.freed)
        };
        let freed = found.parts.iter().filter(|part| part.freed).map(|part| part.handle);
        let handles: Vec<_> = freed.filter(|&handle| !lent(handle)).collect();
        if !handles.is_empty() {
            self.step(Event::Freed { tenant: found.owner, handles });
        }
    }

    /// What dead owners left to others on a GPU.
    pub(super) fn orphans(&self, gpu: GpuId) -> Bytes {
        self.publications.orphans.get(&gpu).copied().unwrap_or_default()
    }

    /// So much is nobody's from now on, beside what programs outside of rota have.
    fn count_orphans(&mut self, gpu: GpuId, bytes: Bytes) {
        let before = self.publications.orphans.insert(gpu, bytes).unwrap_or_default();
        let unmanaged = self.core.gpu(gpu).map_or(Bytes::ZERO, |view| view.unmanaged);
        self.step(Event::Unmanaged { gpu, bytes: unmanaged.less(before) + bytes });
    }

    /// A tenant has left: nobody opens what it published any more.
    pub(super) fn withdraw_all(&mut self, owner: TenantId) {
        let theirs: Vec<_> = self
            .publications
            .all
            .iter()
            .filter(|(_, found)| found.owner == owner)
            .map(|(&token, _)| token)
            .collect();
        for token in theirs {
            if let Some(found) = self.publications.all.get_mut(&token) {
                found.withdraw();
            }
        }
    }

    /// The driver is about to have given back what someone had who left: all but what others have open.
    pub(super) fn settle_dead(&mut self, tenant: TenantId) {
        let mut concerned = Vec::new();
        let mut orphaned: BTreeMap<HandleId, Bytes> = BTreeMap::new();
        let mut gpu = None;
        for (&token, found) in &mut self.publications.all {
            if found.openers.remove(&tenant).is_some() || found.owner == tenant {
                concerned.push(token);
            }
            if found.owner == tenant && !found.openers.is_empty() {
                found.orphaned = true;
                gpu = Some(found.gpu);
                // Published twice, it is there once.
                found.parts.retain(|part| orphaned.insert(part.handle, part.bytes).is_none());
            }
        }
        if let Some(gpu) = gpu {
            let more: Bytes = orphaned.into_values().sum();
            self.count_orphans(gpu, self.orphans(gpu) + more);
        }
        for token in concerned {
            self.settle_publication(token);
        }
    }
}
