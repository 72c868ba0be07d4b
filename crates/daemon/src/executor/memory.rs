//! The thread that owns the mover: it knows where every handle is.

use super::homes::Homing;
use super::moves::Requests;
use super::{Done, Link, Work, complain};
use crate::conversation::Belonging;
use crate::daemon::{Input, Shown};
use crate::events::{Events, nanos};
use crate::names::{key, owned, owner, tenant};
use mover::mover::{HandleView, Whereabouts};
use mover::{Device, HandleKey, Mover, MoverError, Owner, Reply};
use sched::{Bytes, Outcome, Owned, TenantId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// How often to look at an arena that grows.
const ARENA_LOOK: Duration = Duration::from_millis(50);

/// How often to look for an answer that is late: so long a program that was stopped and goes on waits for no reason.
const LATE_LOOK: Duration = Duration::from_millis(10);

/// See the module.
pub struct Memory<D: Device> {
    pub(super) mover: Mover<D>,
    pub(super) links: BTreeMap<TenantId, Link>,
    pub(super) replies: Receiver<Reply>,
    pub(super) events: Events,
    /// Handles that are neither here nor there because their tenant does not answer, as the core was told last.
    pub(super) unsettled: BTreeMap<TenantId, BTreeSet<Owned>>,
    pub(super) homing: Homing,
    commits: u64,
    /// Why the device does nothing any more, until that is told.
    pub(super) broken: Option<String>,
    /// Tenants that are gone or were put out. What they had is dropped, or cannot be put right: it is never all there again, though
    /// the mover knows of nothing that is missing. Their programs may live.
    bereft: BTreeSet<TenantId>,
}

impl<D: Device> Memory<D> {
    /// Owns `mover`; tenants' answers to moves come in through `replies`. Memory in use is looked at so often, if ever.
    pub fn new(
        mover: Mover<D>,
        replies: Receiver<Reply>,
        events: Events,
        looks_every: Option<Duration>,
    ) -> Self {
        Self {
            mover,
            links: BTreeMap::new(),
            replies,
            events,
            unsettled: BTreeMap::new(),
            homing: Homing::new(looks_every),
            commits: 1,
            broken: None,
            bereft: BTreeSet::new(),
        }
    }

    /// Works until told to stop, or until nobody listens.
    pub fn run(mut self, work: &Receiver<Work>, report: &Sender<Input>) {
        if let Err(cause) = self.mover.device_mut().attach() {
            self.error(None, &format!("the executor cannot use the GPU: {cause}"));
            return;
        }
        let mut arena_grows = true;
        loop {
            let mut done = Vec::new();
            if arena_grows && !self.mover.arena().is_growing() {
                arena_grows = false;
                done.push(Done::Arena(self.note_arena()));
            }
            let item = match self.patience(arena_grows) {
                _ if !done.is_empty() => None,
                Some(patience) => match work.recv_timeout(patience) {
                    Ok(item) => Some(item),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                },
                None => match work.recv() {
                    Ok(item) => Some(item),
                    Err(_) => return,
                },
            };
            self.take_late_answers();
            let concerns_copies = item.as_ref().is_some_and(may_change_copies);
            match item {
                Some(Work::Stop) => return,
                Some(item) => done.extend(self.take_up(item)),
                None => {}
            }
            done.extend(self.mind_homes());
            done.extend(self.who_answered().map(Done::Answers));
            // First: after that nobody needs to know what came of the rest.
            done.splice(0..0, self.broken.take().map(Done::Broken));
            for done in done {
                if report.send(Input::Done(done)).is_err() {
                    return;
                }
            }
            if concerns_copies {
                // Here, where nobody waits for it: the keeper is asked.
                self.mover.arena().look_at_kept();
            }
        }
    }

    /// How long to wait for work, if there is something else to look at.
    fn patience(&self, arena_grows: bool) -> Option<Duration> {
        let late = (!self.unsettled.is_empty()).then_some(LATE_LOOK);
        [late, arena_grows.then_some(ARENA_LOOK), self.homes_patience()].into_iter().flatten().min()
    }

    fn take_up(&mut self, item: Work) -> Option<Done> {
        match item {
            Work::Join(tenant, link, process) => {
                self.mover.set_domain(owner(tenant), link.domain.as_ref().map(Belonging::domain));
                self.links.insert(tenant, link);
                self.introduce(tenant, process);
                None
            }
            Work::TakeOver { tenant, link, process, is_new, handles, passable } => {
                self.mover.set_domain(owner(tenant), link.domain.as_ref().map(Belonging::domain));
                let may_pass = passable.into_iter().map(|handle| HandleKey { owner: owner(tenant), handle });
                may_pass.for_each(|key| self.mover.may_pass(key));
                self.links.insert(tenant, link);
                let found = match is_new {
                    true => self.take_in_anew(tenant, process, handles),
                    false => self.take_back(tenant, process, handles),
                };
                Some(Done::TakenOver(tenant, self.settle_takeover(tenant, found)))
            }
            Work::Forsake(tenant) => {
                self.mover.forget_owner(owner(tenant));
                self.links.remove(&tenant);
                None
            }
            Work::LetGo(tenant, process, answer) => {
                self.take_late_answers();
                if !self.mover.let_go(owner(tenant), process) {
                    let _ = answer.send(false);
                    return None;
                }
                self.links.remove(&tenant);
                self.unsettled.remove(&tenant);
                Some(Done::LetGo(tenant, process, answer))
            }
            Work::Adopt(owned, bytes, shown) => Some(Done::Adopted(owned, self.adopt(owned, bytes, shown))),
            Work::NeverPass(tenant, handles) => {
                for handle in handles {
                    self.mover.never_pass(key(Owned { tenant, handle }));
                }
                None
            }
            Work::Forget(tenant, handles) => {
                for &handle in &handles {
                    // Unknown if a move under way was told first, or if it could not be adopted.
                    let _ = self.mover.forget(key(Owned { tenant, handle }));
                }
                self.commit_if_whole(tenant);
                Some(Done::Forgotten(tenant, handles))
            }
            Work::Move { op, out, into, room } => Some(Done::now(op, self.exchange(&out, &into, room))),
            Work::AdoptHosted(owned, bytes, file) => {
                self.adopt_hosted(owned, bytes, file);
                None
            }
            Work::ForgetHosted(tenant, answer) => {
                let _ = answer.send(self.mover.forget_hosted(owner(tenant)));
                None
            }
            Work::Prepare(op, tenant, handles) => self.prepare(op, tenant, &handles),
            Work::Rehome(op, tenant, down, up) => Some(Done::now(op, self.rehome(tenant, &down, &up))),
            Work::Inspect(op, tenants) => Some(Done::now(op, self.inspect(&tenants))),
            Work::Reap(tenant, seen) => {
                self.mover.forget_owner(owner(tenant));
                self.links.remove(&tenant);
                self.unsettled.remove(&tenant);
                self.bereft.remove(&tenant);
                Some(Done::Reaped(tenant, seen))
            }
            Work::Stop => None,
        }
    }

    /// Tells the keeper of a tenant. Without that nothing of it can be moved, which every move will say.
    pub(super) fn introduce(&mut self, tenant: TenantId, process: keeper::Process) {
        if let Err(cause) = self.mover.introduce(owner(tenant), process) {
            self.error(Some(tenant), &format!("the keeper does not take it in: {cause}"));
        }
    }

    /// Answers that came after their move was given up still settle where those handles are.
    fn take_late_answers(&mut self) {
        if !self.unsettled.is_empty() {
            self.mover.catch_up(&mut Requests(&self.links));
        }
        while let Ok(reply) = self.replies.try_recv() {
            self.hear(reply);
        }
    }

    /// Takes in what no move waits for.
    pub(super) fn hear(&mut self, reply: Reply) {
        if let Reply::Gone { owner } = reply {
            self.lost(owner);
        }
        if let Some(owner) = self.mover.late(reply, &mut Requests(&self.links)) {
            self.end(owner);
        }
    }

    /// All of a tenant's memory is dropped.
    pub(super) fn lost(&mut self, owner: Owner) {
        self.bereft.insert(tenant(owner));
    }

    /// Tenants of which something has settled since the core was told.
    fn who_answered(&mut self) -> impl Iterator<Item = TenantId> + use<D> {
        let mut answered = Vec::new();
        for tenant in self.unsettled.keys().copied().collect::<Vec<_>>() {
            let now = self.unsettled_of(tenant);
            if self.unsettled.get(&tenant) != Some(&now) {
                answered.push(tenant);
                self.commit_if_whole(tenant);
                self.remember_unsettled(tenant, now);
            }
        }
        answered.into_iter()
    }

    pub(super) fn remember_unsettled(&mut self, tenant: TenantId, unsettled: BTreeSet<Owned>) {
        match unsettled.is_empty() {
            true => self.unsettled.remove(&tenant),
            false => self.unsettled.insert(tenant, unsettled),
        };
    }

    pub(super) fn unsettled_of(&self, tenant: TenantId) -> BTreeSet<Owned> {
        let moving = self.those_of(tenant, |at| matches!(at, Whereabouts::Leaving | Whereabouts::Returning));
        moving.chain(self.mover.exchanging(owner(tenant)).map(owned)).collect()
    }

    fn those_of(&self, tenant: TenantId, at: impl Fn(Whereabouts) -> bool) -> impl Iterator<Item = Owned> {
        let handles = self.mover.handles(owner(tenant)).into_iter();
        handles.filter(move |held| at(held.whereabouts)).map(|held| owned(held.key))
    }

    fn adopt(&mut self, owned: Owned, bytes: Bytes, Shown { file, passable }: Shown) -> bool {
        if passable {
            self.mover.may_pass(key(owned));
        }
        match self.mover.adopt(key(owned), bytes.0, file) {
            // Shown although it was known.
            Ok(()) | Err(MoverError::Duplicate { .. }) => true,
            Err(cause) => {
                let what = format!("a handle of {} bytes cannot be moved: {cause}", bytes.0);
                self.error(Some(owned.tenant), &what);
                false
            }
        }
    }

    fn inspect(&mut self, tenants: &[TenantId]) -> Outcome {
        let (mut away, mut unsettled) = (Vec::new(), Vec::new());
        for &tenant in tenants {
            away.extend(self.those_of(tenant, |at| at == Whereabouts::Arena));
            let now = self.unsettled_of(tenant);
            unsettled.extend(now.iter().copied());
            self.remember_unsettled(tenant, now);
            self.commit_if_whole(tenant);
        }
        Outcome::Found { away, unsettled }
    }

    /// Is all of a tenant's memory on the device? A handle that is neither here nor there is not: its tenant may still
    /// follow an order to unmap it.
    fn is_whole(&self, tenant: TenantId) -> bool {
        let is_here = |held: &HandleView| held.whereabouts == Whereabouts::Device;
        self.mover.handles(owner(tenant)).iter().all(is_here)
            && self.mover.exchanging(owner(tenant)).next().is_none()
    }

    /// Commits that a tenant's memory is there, if it is: from here on the tenant may go on without the daemon.
    pub(super) fn commit_if_whole(&mut self, tenant: TenantId) {
        let whole = self.is_whole(tenant) && !self.bereft.contains(&tenant);
        let Some(link) = self.links.get(&tenant).filter(|_| whole) else { return };
        if !link.grip.page().resident() {
            self.commits += 1;
            link.grip.commit_residency(self.commits);
        }
    }

    /// A tenant has memory under its addresses that is not its own, and could not be made to drop it: its program must
    /// not go on. Hung up on with its residency revoked, it ends itself and says why.
    pub(super) fn end(&mut self, owner: Owner) {
        let tenant = tenant(owner);
        self.bereft.insert(tenant);
        self.error(Some(tenant), "its memory cannot be brought back or put right: the program is ended");
        if let Some(link) = self.links.get(&tenant) {
            link.outgoing.hang_up();
        }
    }

    /// The arena is as large as it will be: says so, and how large that is.
    fn note_arena(&mut self) -> Bytes {
        let arena = self.mover.arena();
        let bytes = arena.ready_bytes();
        if let Some(why) = arena.stopped() {
            self.error(None, &format!("the arena stays at {bytes} bytes: {why}"));
        }
        let took_ns = nanos(self.events.now());
        let cellar_bytes = arena.cellar_room_bytes();
        let ready = json!({ "bytes": bytes, "cellar_bytes": cellar_bytes, "took_ns": took_ns });
        self.events.note("arena_ready", ready);
        Bytes(bytes + cellar_bytes)
    }

    pub(super) fn note(&self, event: &str, tenant: TenantId, fields: serde_json::Value) {
        match self.links.get(&tenant) {
            Some(link) => self.events.note_of(&link.who, event, fields),
            None => self.events.note(event, json!({ "tenant": tenant.0 })),
        }
    }

    pub(super) fn error(&self, tenant: Option<TenantId>, what: &str) {
        match tenant.and_then(|tenant| self.links.get(&tenant)) {
            Some(link) => complain(&self.events, &link.who, what),
            None => {
                let tenant = tenant.map(|tenant| tenant.0);
                tracing::error!(tenant, "{what}");
                self.events.note("error", json!({ "tenant": tenant, "what": what }));
            }
        }
    }
}

/// May there be more or fewer clean copies after this?
fn may_change_copies(work: &Work) -> bool {
    match work {
        Work::Move { .. }
        | Work::TakeOver { .. }
        | Work::Forget(..)
        | Work::Forsake(_)
        | Work::LetGo(..)
        | Work::Reap(..) => true,
        Work::Join(..)
        | Work::Adopt(..)
        | Work::NeverPass(..)
        | Work::AdoptHosted(..)
        | Work::ForgetHosted(..)
        | Work::Prepare(..)
        | Work::Rehome(..)
        | Work::Inspect(..)
        | Work::Stop => false,
    }
}
