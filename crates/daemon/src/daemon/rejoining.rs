//! How tenants of an earlier worker come back: with a context and memory that are there, whatever the books say.
//!
//! Who they are, the kernel says: one that was away is believed only if the keeper recorded its number for this very process,
//! by its start time too. One that has all of its memory on the device comes as somebody new, should the keeper not know it.

use super::arrivals::{Meeting, Met};
use super::commands::Peer;
use super::sights::Recent;
use super::{Daemon, Freezes, Known};
use crate::conversation::{Held, Taken};
use crate::events::Who;
use crate::executor::{Link, Work};
use crate::names::{TENANT_NUMBER_MAX, owner};
use crate::outgoing::FirstWord;
use mover::Reported;
use sched::{Bytes, Event, GpuId, Survivor, TenantId};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use wire::{Connection, FromDaemon, SizedHandle};

/// Who somebody says that it was, and how it is.
#[derive(Debug)]
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
}

/// Somebody who comes back.
#[derive(Debug)]
pub struct Returner {
    /// By its own word.
    pub claim: Claim,
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// Whose process.
    pub uid: u32,
    /// What it has under its addresses.
    pub here: Vec<(SizedHandle, OwnedFd)>,
    /// What it has not.
    pub away: Vec<SizedHandle>,
    /// Its files count until the mover has looked at them.
    pub held: Held,
    /// How to speak to it.
    pub connection: Arc<Connection>,
    /// Gets what it is from now on; dropped if it is refused.
    pub answer: Sender<Taken>,
}

/// Somebody whose memory is being taken over.
#[derive(Debug)]
pub(super) struct Returning {
    gpu: GpuId,
    program: String,
    link: Link,
    resident: bool,
    channels: bool,
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
    /// Somebody of an earlier worker is here.
    pub(super) fn rejoin(&mut self, returner: Returner) {
        let Claim { resident, epoch, ref gpu, .. } = returner.claim;
        if epoch == self.epoch {
            return turn_back(&returner, true, "the daemon has put this program out; its log says why");
        }
        let number = |(_, shared): &(GpuId, &super::SharedGpu)| shared.uuid == *gpu;
        let Some((gpu, shared)) = self.gpus().find(number) else {
            return turn_back(&returner, !resident, "its GPU is not shared any more");
        };
        if returner.claim.holds_launches != (shared.freezes == Freezes::Launches) {
            return turn_back(&returner, false, "this daemon stops programs in another way (--freeze)");
        }
        let claimed = TenantId(returner.claim.tenant.0.into());
        let is_known = self.arena.found().contains(&(owner(claimed), returner.process));
        let tenant = match is_known {
            true => claimed,
            false if !resident => {
                return turn_back(
                    &returner,
                    true,
                    "the keeper of its memory is gone, or never knew this program",
                );
            }
            false if self.next_tenant > TENANT_NUMBER_MAX => {
                return turn_back(&returner, false, "the daemon has no numbers left");
            }
            false => {
                self.next_tenant += 1;
                TenantId(self.next_tenant - 1)
            }
        };
        if self.returning.contains_key(&tenant) || self.known.contains_key(&tenant) {
            return turn_back(&returner, false, "it is here already");
        }
        let job = match self.job_of_returner(&returner) {
            Ok(job) => job,
            Err(reason) => return turn_back(&returner, false, &reason),
        };
        if !is_known && let Err(reason) = self.may_come_anew(&returner, job, gpu) {
            turn_back(&returner, false, &reason);
            return self.end_if_empty(job);
        }
        self.jobs.join(job, tenant);
        if let Some(job) = self.jobs.get_mut(job) {
            job.gpus.insert(gpu);
        }
        let Returner { claim, process, connection, here, away, held, answer, .. } = returner;
        let meeting = Meeting { tenant, gpu, frozen: claim.frozen, resident };
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
        let link = Link { who, grip, outgoing };
        let here = here.into_iter().map(|(sized, file)| reported(sized, Some(file)));
        let handles = here.chain(away.into_iter().map(|sized| reported(sized, None))).collect();
        let (is_new, unmovable_max) = (!is_known, self.gpu(gpu).capacity_bytes);
        let link_to_it = link.clone();
        let work = Work::TakeOver { tenant, link: link_to_it, process, is_new, unmovable_max, handles };
        self.executor(gpu).order(work);
        let Claim { program, channels, .. } = claim;
        let returning =
            Returning { gpu, program, link, resident, channels, first_word, welcome, _held: held, answer };
        self.returning.insert(tenant, returning);
    }

    /// Whether somebody may be taken in whom the keeper does not know: it has no more right to come than whoever is at the
    /// door, and not more memory than such a one could have been granted.
    fn may_come_anew(&self, returner: &Returner, job: sched::JobId, gpu: GpuId) -> Result<(), String> {
        if self.stopping {
            return Err("the daemon is stopping".to_owned());
        }
        let peer = Peer { pid: returner.process.pid, uid: returner.uid };
        self.may_be_on(peer, job, gpu).map_err(|refusal| refusal.reason)?;
        let most = self.memory_limit(job, gpu).min(self.gpu(gpu).capacity_bytes);
        let sizes = returner.here.iter().map(|(sized, _)| sized).chain(&returner.away);
        let has = sizes.fold(0_u64, |sum, sized| sum.saturating_add(sized.bytes));
        if has > most {
            return Err(format!("it says that it has {has} bytes on the device, and may have {most}"));
        }
        Ok(())
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
        let Returning { gpu, program, link, resident, channels, first_word, welcome, answer, .. } = returning;
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
                self.executor(gpu).order(Work::Forsake(tenant));
                return self.end_job_of(tenant);
            }
        };
        let Some(home) = self.jobs.of(tenant) else { return };
        first_word.say(welcome.0, vec![welcome.1]);
        let sum = |away_too: bool| -> u64 {
            let counted = handles.iter().filter(|survivor| away_too == away(survivor));
            counted.map(|survivor| survivor.bytes.0).sum()
        };
        let (resident_bytes, away_bytes) = (sum(false), sum(true));
        let grip = link.grip.clone();
        let (idleness, demands, pins) = Default::default();
        let contexts = Recent::default();
        let known = Known { link, gpu, program, context: false, idleness, demands, pins, contexts };
        self.known.insert(tenant, known);
        let residue = Bytes(self.gpu(gpu).residue_bytes);
        self.step(Event::Rejoined { tenant, job: home, gpu, residue, handles });
        self.tell_of_memory(home);
        let fields = json!({ "gpu": gpu.0, "resident_bytes": resident_bytes, "away_bytes": away_bytes });
        self.note("rejoined", tenant, fields);
        if !channels {
            self.gathered(tenant);
        }
        let _ = answer.send(Taken { tenant, grip, replies: self.executor(gpu).replies.clone() });
    }
}

fn reported(sized: SizedHandle, file: Option<OwnedFd>) -> Reported {
    Reported { handle: sized.handle.0, bytes: sized.bytes, file }
}

/// Somebody is not taken in: it is to end, or may come again.
fn turn_back(returner: &Returner, is_lost: bool, reason: &str) {
    let Returner { claim, process, connection, .. } = returner;
    tracing::warn!("process {} ({}) is not taken over: {reason}", process.pid, claim.program);
    let reason = reason.to_owned();
    let message = match is_lost {
        true => FromDaemon::Lost { reason },
        false => FromDaemon::Refused { reason },
    };
    let _ = connection.send(&message, &[]);
}
