//! How tenants of an earlier worker come back: with a context and memory that are there, whatever the books say.
//!
//! Who they are, the kernel says: one that was away is believed only if the keeper recorded its number for this very process,
//! by its start time too. One that has all of its memory on the device comes as somebody new, should the keeper not know it.

use super::arrivals::{Meeting, Met};
use super::commands::Peer;
use super::pins::Pins;
use super::sights::Recent;
use super::{Daemon, Freezes, Known, Toll, unshown};
use crate::conversation::{Belonging, Held, Taken};
use crate::events::Who;
use crate::executable::Seen;
use crate::executor::{Link, Work, complain};
use crate::names::{TENANT_NUMBER_MAX, owner};
use crate::outgoing::FirstWord;
use crate::reasons;
use mover::{Reported, ReportedMemory};
use sched::{Bytes, Event, GpuId, Survivor, TenantId};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use wire::{Connection, FromDaemon, SizedHandle};

/// Who somebody says that it was, and how it is.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its number.
    pub tenant: wire::TenantId,
    /// The epoch of its daemon.
    pub epoch: u64,
    /// Its job.
    pub job: String,
    /// The program's name.
    pub program: String,
    /// Its GPU, by UUID.
    pub gpu: String,
    /// All of its memory was on the device.
    pub resident: bool,
    /// It is frozen.
    pub frozen: bool,
    /// It has channels, and will tell of them.
    pub channels: bool,
    /// It is frozen by holding its launches back.
    pub holds_launches: bool,
    /// On how many GPUs it is a tenant.
    pub sessions: u32,
    /// Its threads keep out of the driver: an earlier worker was about to put it away, or to bring it back.
    pub vacated: bool,
}

/// What somebody has.
#[derive(Debug, Default)]
pub struct Has {
    /// What lies under its addresses, with a file for each.
    pub here: Vec<(SizedHandle, OwnedFd)>,
    /// What does not.
    pub away: Vec<SizedHandle>,
    /// What lies under its addresses, and cannot be moved: there is no file of it.
    pub unshown: Vec<SizedHandle>,
    /// What nobody else has, by its word.
    pub passable: Vec<u64>,
}

impl Has {
    fn sizes(&self) -> impl Iterator<Item = &SizedHandle> {
        self.here.iter().map(|(sized, _)| sized).chain(&self.away).chain(&self.unshown)
    }

    fn reported(self) -> Vec<Reported> {
        let here = self.here.into_iter().map(|(sized, file)| (sized, ReportedMemory::Shown(file)));
        let away = self.away.into_iter().map(|sized| (sized, ReportedMemory::None));
        let unshown = self.unshown.into_iter().map(|sized| (sized, ReportedMemory::Unshown));
        let all = here.chain(away).chain(unshown);
        all.map(|(SizedHandle { handle, bytes }, memory)| Reported { handle: handle.0, bytes, memory })
            .collect()
    }
}

/// Somebody who comes back.
#[derive(Debug)]
pub struct Returner {
    /// By its own word.
    pub claim: Claim,
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// The file that it runs, by the kernel's word, if anything depends on it.
    pub executable: Seen,
    /// Whose process.
    pub uid: u32,
    /// Whose memory it may have, by the kernel's word.
    pub domain: Option<Belonging>,
    /// Its memory.
    pub has: Has,
    /// Its files count until the mover has looked at them.
    pub held: Held,
    /// How to speak to it.
    pub connection: Arc<Connection>,
    /// Gets what it is from now on; dropped if it is refused.
    pub answer: Sender<Taken>,
}

/// Somebody who would come back, and has not told of its memory yet.
#[derive(Debug)]
pub struct Applicant {
    /// By its own word.
    pub claim: Claim,
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// Whose process.
    pub uid: u32,
}

/// Where somebody was, and whether the keeper knows it.
struct Standing {
    gpu: GpuId,
    is_known: bool,
}

/// Why somebody is not taken in: it is to end, or may come again.
struct TurnedBack {
    reason: String,
    is_lost: bool,
}

impl TurnedBack {
    fn lost(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_lost: true }
    }

    fn again(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_lost: false }
    }

    /// What it is told.
    fn say(self, claim: &Claim, process: keeper::Process) -> FromDaemon {
        let Self { reason, is_lost } = self;
        tracing::warn!("process {} ({}) is not taken over: {reason}", process.pid, claim.program);
        if is_lost { FromDaemon::Lost { reason } } else { FromDaemon::Refused { reason } }
    }
}

/// Somebody whose memory is being taken over.
#[derive(Debug)]
pub(super) struct Returning {
    gpu: GpuId,
    program: String,
    link: Link,
    process: keeper::Process,
    /// The keeper knows it.
    is_known: bool,
    /// On how many GPUs its process is.
    sessions: u32,
    resident: bool,
    channels: bool,
    vacated: bool,
    first_word: FirstWord,
    welcome: (FromDaemon, Arc<OwnedFd>),
    _held: Held,
    answer: Sender<Taken>,
}

impl Returning {
    /// The GPU that it is on.
    pub(super) fn gpu(&self) -> GpuId {
        self.gpu
    }
}

/// What the mover found of somebody.
#[derive(Debug)]
pub enum TakenOver {
    /// All of it.
    All(Vec<Survivor>),
    /// Something is nowhere.
    Lost(String),
    /// That cannot be said, or not be taken in, and nothing has changed: it may come again.
    Refused(String),
}

impl Daemon {
    /// Whether somebody of an earlier worker would be taken in, as far as that can be said before it tells of its memory.
    pub(super) fn may_rejoin(&self, applicant: &Applicant) -> Result<(), FromDaemon> {
        let Applicant { claim, process, uid } = applicant;
        let standing = self.standing(claim, *process).map_err(|turned| turned.say(claim, *process))?;
        if !standing.is_known
            && let Err(reason) = self.may_come_anew(*uid, *process, &claim.job, standing.gpu)
        {
            return Err(TurnedBack::again(reason).say(claim, *process));
        }
        Ok(())
    }

    fn standing(&self, claim: &Claim, process: keeper::Process) -> Result<Standing, TurnedBack> {
        let tenant = TenantId(claim.tenant.0.into());
        let is_known = self.arena.found().contains(&(owner(tenant), process));
        // One that this daemon took in and let go again is expected once more, whatever its page says since.
        if claim.epoch == self.epoch && !is_known {
            return Err(TurnedBack::lost("the daemon has put this program out; its log says why"));
        }
        let Some((gpu, shared)) = self.gpus().find(|(_, shared)| shared.uuid == claim.gpu) else {
            let reason = "its GPU is not shared any more";
            return Err(if claim.resident { TurnedBack::again(reason) } else { TurnedBack::lost(reason) });
        };
        if claim.holds_launches != (shared.freezes == Freezes::Launches) {
            return Err(TurnedBack::again("this daemon stops programs in another way (--freeze)"));
        }
        let returning = self.returning.get(&tenant).filter(|returning| returning.is_known);
        let returning = returning.map(|returning| returning.process);
        let here = self.known.get(&tenant).and_then(|known| known.came_back);
        if [returning, here].contains(&Some(process)) {
            // It may have hung up, which is yet to be heard of.
            return Err(TurnedBack::again("it is here already"));
        }
        if !is_known && !claim.resident {
            return Err(TurnedBack::lost("the keeper of its memory is gone, or never knew this program"));
        }
        if !is_known && self.next_tenant > TENANT_NUMBER_MAX {
            return Err(TurnedBack::again("the daemon has no numbers left"));
        }
        Ok(Standing { gpu, is_known })
    }

    /// Somebody of an earlier worker is here.
    pub(super) fn rejoin(&mut self, returner: Returner) {
        let (claim, process) = (&returner.claim, returner.process);
        let turn_back = |turned: TurnedBack| {
            let _ = returner.connection.send(&turned.say(claim, process), &[]);
        };
        let Standing { gpu, is_known } = match self.standing(claim, process) {
            Ok(standing) => standing,
            Err(turned) => return turn_back(turned),
        };
        if !is_known {
            let may_come = self.may_come_anew(returner.uid, process, &claim.job, gpu);
            if let Err(reason) = may_come.and_then(|()| self.may_have(&returner, gpu)) {
                return turn_back(TurnedBack::again(reason));
            }
        }
        let job = match self.job_of_returner(&returner) {
            Ok(job) => job,
            Err(reason) => return turn_back(TurnedBack::again(reason)),
        };
        let terms = self.terms_beside(job, returner.uid, process.pid, &returner.executable);
        match terms {
            Ok(terms) => self.lower_terms(job, terms),
            // Whom the keeper knows was let in before.
            Err(refusal) if is_known => tracing::warn!("process {}: {}", process.pid, refusal.reason),
            Err(refusal) => {
                turn_back(TurnedBack::again(refusal.reason));
                return self.end_if_empty(job);
            }
        }
        let tenant = match is_known {
            true => TenantId(claim.tenant.0.into()),
            false => {
                self.next_tenant += 1;
                TenantId(self.next_tenant - 1)
            }
        };
        self.jobs.join(job, tenant);
        self.note_program(job, tenant, &returner.executable);
        if let Some(job) = self.jobs.get_mut(job) {
            job.gpus.insert(gpu);
        }
        let Returner { claim, process, domain, connection, mut has, held, answer, .. } = returner;
        // It may have been left running for a step of the driver's, and must not run without its memory once that is over.
        let frozen = claim.frozen || (claim.vacated && !claim.resident);
        let meeting = Meeting { tenant, gpu, frozen, resident: claim.resident };
        let Met { grip, outgoing, first_word, welcome } = match self.meet(&connection, &meeting) {
            Ok(met) => met,
            Err(cause) => {
                tracing::error!(
                    "process {} ({}) cannot be taken over: {cause:#}",
                    process.pid,
                    claim.program
                );
                connection.shut_down();
                return self.end_job_of(tenant);
            }
        };
        let who = Who { tenant, pid: process.pid, job: claim.job };
        let link = Link { who, process, domain, grip, outgoing };
        let passable = std::mem::take(&mut has.passable);
        let handles = has.reported();
        let work =
            Work::TakeOver { tenant, link: link.clone(), process, is_new: !is_known, handles, passable };
        self.executor(gpu).order(work);
        let Claim { program, channels, resident, sessions, vacated, .. } = claim;
        let returning = Returning {
            gpu,
            program,
            link,
            process,
            is_known,
            sessions,
            resident,
            channels,
            vacated,
            first_word,
            welcome,
            _held: held,
            answer,
        };
        self.returning.insert(tenant, returning);
    }

    /// Whether somebody may be taken in whom the keeper does not know: it has no more right to come than whoever is at the
    /// door.
    fn may_come_anew(&self, uid: u32, process: keeper::Process, job: &str, gpu: GpuId) -> Result<(), String> {
        if self.stopping {
            return Err("the daemon is stopping".to_owned());
        }
        match self.jobs.named(uid, job) {
            Some(job) => self.may_be_on(Peer { process, uid }, job, gpu),
            None => self.usual_terms(uid, process.pid).map(drop),
        }
        .map_err(|refusal| refusal.reason)
    }

    /// Nor may it have more memory than such a one could have been granted.
    fn may_have(&self, returner: &Returner, gpu: GpuId) -> Result<(), String> {
        let capacity = self.gpu(gpu).capacity_bytes;
        let limit = match self.jobs.named(returner.uid, &returner.claim.job) {
            Some(job) => Some(self.memory_limit(job, gpu)),
            None => self
                .usual_terms(returner.uid, returner.process.pid)
                .ok()
                .and_then(|terms| terms.memory_max_bytes),
        };
        let most = limit.map_or(capacity, |limit| limit.min(capacity));
        let has: Bytes = returner.has.sizes().map(|sized| Bytes(sized.bytes)).sum();
        if has.0 > most {
            return Err(format!("it says that it has {} bytes on the device, and may have {most}", has.0));
        }
        // Nor more that stays there.
        let stays = returner.has.unshown.iter().map(|sized| Bytes(sized.bytes)).sum();
        self.core.cannot_stay_on(gpu, stays).map_or(Ok(()), |why| Err(reasons::words(why)))
    }

    fn job_of_returner(&mut self, returner: &Returner) -> Result<sched::JobId, String> {
        let (uid, name) = (returner.uid, &returner.claim.job);
        match self.jobs.named(uid, name) {
            Some(job) => Ok(job),
            None => self.begin_usual_job(uid, returner.process.pid, name).map_err(|refusal| refusal.reason),
        }
    }

    /// The mover has looked at what somebody has who comes back.
    pub(super) fn taken_over(&mut self, tenant: TenantId, found: TakenOver) {
        let Some(returning) = self.returning.remove(&tenant) else { return };
        let Returning { gpu, program, link, resident, channels, vacated, .. } = returning;
        let (first_word, welcome, answer) = (returning.first_word, returning.welcome, returning.answer);
        let (process, is_known, sessions) = (returning.process, returning.is_known, returning.sessions);
        let came_back = is_known.then_some(process);
        let away = |survivor: &Survivor| !matches!(survivor.place, sched::SurvivorPlace::Device { .. });
        let handles = match found {
            TakenOver::All(handles) if resident && handles.iter().any(away) => {
                Err("it took all of its memory to be on the device, which is not so".to_owned())
            }
            TakenOver::All(handles) => Ok(handles),
            TakenOver::Lost(reason) => Err(reason),
            TakenOver::Refused(reason) => {
                tracing::warn!("process {} ({program}) is not taken over: {reason}", link.who.pid);
                first_word.say(FromDaemon::Refused { reason }, Vec::new());
                return self.end_job_of(tenant);
            }
        };
        let handles = match handles {
            Ok(handles) => handles,
            Err(reason) => {
                tracing::error!("process {} ({program}) cannot go on: {reason}", link.who.pid);
                first_word.say(FromDaemon::Lost { reason }, Vec::new());
                self.give_up_muster(process);
                self.gathered(tenant);
                self.executor(gpu).order(Work::Forsake(tenant));
                return self.end_job_of(tenant);
            }
        };
        let Some(home) = self.jobs.of(tenant) else { return };
        first_word.say(welcome.0, vec![welcome.1]);
        let (handles, too_much) = self.believed(gpu, home, handles);
        if too_much > Bytes::ZERO {
            let what = format!(
                "it names {} bytes without showing them that cannot be there: they do not count",
                too_much.0
            );
            complain(&self.events, &link.who, &what);
        }
        let sum = |away_too: bool| -> u64 {
            let counted = handles.iter().filter(|survivor| away_too == away(survivor));
            counted.map(|survivor| survivor.bytes.0).sum()
        };
        let (resident_bytes, away_bytes) = (sum(false), sum(true));
        let grip = link.grip.clone();
        let (idleness, hinting, demands) = Default::default();
        let pins = Pins::with_unshown(unshown::of(&handles));
        let toll = Toll::of(&grip);
        let contexts = Recent::default();
        let known = Known {
            link,
            gpu,
            program,
            came_back,
            context: false,
            idleness,
            hinting,
            toll,
            demands,
            pins,
            contexts,
        };
        self.known.insert(tenant, known);
        let residue = Bytes(self.gpu(gpu).residue_bytes);
        self.step(Event::Rejoined { tenant, job: home, gpu, residue, handles });
        if vacated {
            // Before the core hears of its channels, so that nothing of it moves: it may not answer.
            self.find_deep(tenant);
        }
        self.await_files(tenant);
        if !is_known {
            // Others may have outlived the keeper as well.
            self.awaited_names.expect_more();
        }
        self.muster(tenant, process, sessions, channels);
        self.tell_of_memory(home);
        self.tell_of_class(home);
        let fields = json!({ "gpu": gpu.0, "resident_bytes": resident_bytes, "away_bytes": away_bytes });
        self.note("rejoined", tenant, fields);
        if !channels {
            self.gathered(tenant);
        }
        let _ = answer.send(Taken { tenant, grip, replies: self.executor(gpu).replies.clone() });
    }
}
