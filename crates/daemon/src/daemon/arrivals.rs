//! How tenants come: connections are accepted, and whoever says hello is refused, let in, or waits at the door.

use super::commands::Peer;
use super::guests::Guests;
use super::limits::{Refusal, in_core};
use super::sights::Recent;
use super::{Daemon, Freezes, Known, Newcomer};
use crate::conversation::{self, Ears, Taken};
use crate::events::{Who, nanos};
use crate::executor::{Link, Work};
use crate::grip::Grip;
use crate::names::{TENANT_NUMBER_MAX, on_wire};
use crate::outgoing::{FirstWord, Outgoing};
use sched::{Bytes, Event, GpuId, JobId, Span, TenantId, Time};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use wire::{Connection, FromDaemon, Listener, SharedPage, quantity};

/// Whoever has no number here counts as this user, which is nobody's.
const UNKNOWN_USER: u32 = u32::MAX;

/// Someone at the door.
#[derive(Debug)]
pub(super) struct Arriving {
    newcomer: Newcomer,
    gpu: GpuId,
    /// What it was told to wait for, which is said once.
    told: Option<String>,
    /// When it gives up, and how long that is.
    until: Option<(Time, Duration)>,
}

impl Arriving {
    /// The GPU that it will be on.
    pub(super) fn gpu(&self) -> GpuId {
        self.gpu
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.newcomer.process.pid
    }

    /// The same, so that no later one is taken for it.
    pub(super) fn process(&self) -> keeper::Process {
        self.newcomer.process
    }

    /// The program's name.
    pub(super) fn program(&self) -> &str {
        &self.newcomer.program
    }

    /// The job's name.
    pub(super) fn job(&self) -> &str {
        &self.newcomer.job
    }

    /// What it waits for.
    pub(super) fn reason(&self) -> &str {
        self.told.as_deref().unwrap_or("it has just come")
    }
}

/// Accepts whoever comes, for ever.
pub(super) fn accept(listener: &Listener, ears: &Ears) {
    let guests = Guests::of(rustix::process::geteuid().as_raw());
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(cause) => {
                tracing::error!("cannot accept a connection: {cause}");
                // Out of files, most likely: they come back when a tenant leaves.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        // Before anything is read. Somebody who cannot be seen is told so when it has said what it wants.
        let peer = connection.watch_peer();
        let uid = connection.peer().map_or(UNKNOWN_USER, |peer| peer.uid.as_raw());
        let guest = match guests.admit(uid) {
            Ok(guest) => guest,
            Err(reason) => {
                conversation::refuse(&connection, &reason);
                continue;
            }
        };
        let ears = ears.clone();
        let holder = std::thread::Builder::new().name("conversation".into());
        let held = holder.spawn(move || {
            conversation::hold(connection, peer, &ears);
            drop(guest);
        });
        if let Err(cause) = held {
            tracing::error!("no thread for a connection: {cause}");
        }
    }
}

impl Daemon {
    /// Someone is at the door. The core says what becomes of it.
    pub(super) fn hello(&mut self, newcomer: Newcomer) {
        if self.stopping {
            return turn_away(&newcomer, "the daemon is stopping");
        }
        if self.next_tenant > TENANT_NUMBER_MAX {
            return turn_away(&newcomer, "the daemon has no numbers left: it has to be started anew");
        }
        let Some(gpu) = self.first_shared(&newcomer.gpus) else {
            return turn_away(&newcomer, &self.nothing_shared(&newcomer.gpus));
        };
        let Newcomer { uid, process, job: name, .. } = &newcomer;
        let pid = process.pid;
        let job = match self.jobs.named(*uid, name) {
            Some(job) => job,
            None => match self.begin_usual_job(*uid, pid, name) {
                Ok(job) => job,
                Err(refusal) => return turn_away(&newcomer, &refusal.reason),
            },
        };
        if let Err(refusal) = self.may_be_on(Peer { process: *process, uid: *uid }, job, gpu) {
            turn_away(&newcomer, &refusal.reason);
            return self.end_if_empty(job);
        }
        match self.terms_beside(job, *uid, pid, &newcomer.executable) {
            Ok(terms) => self.lower_terms(job, terms),
            Err(refusal) => {
                turn_away(&newcomer, &refusal.reason);
                return self.end_if_empty(job);
            }
        }
        let tenant = TenantId(self.next_tenant);
        self.next_tenant += 1;
        self.jobs.join(job, tenant);
        self.note_program(job, tenant, &newcomer.executable);
        let now = self.now();
        let mut until = None;
        if let Some(job) = self.jobs.get_mut(job) {
            job.gpus.insert(gpu);
            until = job.timeout.map(|timeout| (now + Span(nanos(timeout)), timeout));
        }
        self.arriving.insert(tenant, Arriving { newcomer, gpu, told: None, until });
        self.mind_several(job);
        let residue = Bytes(self.gpu(gpu).residue_bytes);
        self.step(Event::Arrived { tenant, job, gpu, residue });
        self.keep_waiting(tenant, "room is being made for its context".into());
    }

    /// A job that was not started by `rota run` gets what is usual.
    pub(super) fn begin_usual_job(&mut self, uid: u32, pid: u32, name: &str) -> Result<JobId, Refusal> {
        let terms = self.usual_terms(uid, pid)?;
        let core_terms = in_core(uid, &terms, false);
        let job = self.jobs.begin(uid, name, terms, self.now());
        self.step(Event::Job { job, terms: core_terms });
        Ok(job)
    }

    /// Which of these GPUs are shared here, for a program that will be a tenant of those that it uses.
    pub(super) fn survey(&self, uid: u32, job: &str, uuids: &[String]) -> FromDaemon {
        let terms = self.jobs.named(uid, job).and_then(|job| self.jobs.get(job)).map(|job| &job.terms);
        let limit = terms.and_then(|terms| terms.memory_max_bytes);
        let beyond = terms.map_or(0, |terms| terms.oversize_bytes);
        let shared = uuids.iter().filter_map(|uuid| self.setup.gpus.iter().find(|gpu| gpu.uuid == *uuid));
        let shared = shared.map(|gpu| wire::SharedGpu {
            uuid: gpu.uuid.clone(),
            capacity_bytes: limit
                .map_or(gpu.capacity_bytes, |most| most.min(gpu.capacity_bytes))
                .saturating_add(beyond),
        });
        match shared.collect::<Vec<_>>() {
            none if none.is_empty() => FromDaemon::Refused { reason: self.nothing_shared(uuids) },
            gpus => FromDaemon::Shared { gpus },
        }
    }

    fn nothing_shared(&self, seen: &[String]) -> String {
        let shared: Vec<&str> = self.setup.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
        format!("it sees {}, and shared here is {}", seen.join(", "), shared.join(", "))
    }

    /// The first of these GPUs that is shared here: the one that a program uses unless it asks for another.
    fn first_shared(&self, uuids: &[String]) -> Option<GpuId> {
        let number = |uuid: &String| self.setup.gpus.iter().position(|gpu| gpu.uuid == *uuid);
        uuids.iter().find_map(number).map(|number| GpuId(number as u16))
    }

    /// Tells someone at the door to wait, if it is still there and does not know.
    pub(super) fn keep_waiting(&mut self, tenant: TenantId, reason: String) {
        if let Some(arriving) = self.arriving.get_mut(&tenant).filter(|arriving| arriving.told.is_none()) {
            arriving.told = Some(reason.clone());
            tracing::info!("process {} waits at the door: {reason}", arriving.pid());
            let _ = arriving.newcomer.connection.send(&FromDaemon::Waiting { reason }, &[]);
        }
    }

    /// A process on several GPUs is a gang with itself: its kernels may wait for each other, and its GPUs read each other's
    /// memory. Then its whole job is one, as long as that is so.
    pub(super) fn mind_several(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let known = |tenant: &TenantId| self.known.get(tenant).map(|known| (known.link.who.pid, known.gpu));
        let arriving =
            |tenant: &TenantId| self.arriving.get(tenant).map(|arriving| (arriving.pid(), arriving.gpu));
        let mut first = BTreeMap::new();
        let places = job.members.iter().filter_map(|tenant| known(tenant).or_else(|| arriving(tenant)));
        let several = places.into_iter().any(|(pid, gpu)| *first.entry(pid).or_insert(gpu) != gpu);
        if several == job.several {
            return;
        }
        let terms = in_core(job.uid, &job.terms, several);
        if let Some(job) = self.jobs.get_mut(id) {
            job.several = several;
        }
        self.step(Event::Job { job: id, terms });
    }

    /// When the first of those at the door gives up.
    pub(super) fn give_up_at(&self) -> Option<Time> {
        self.arriving.values().filter_map(|arriving| Some(arriving.until?.0)).min()
    }

    /// Sends those away who have waited at the door for as long as they are willing to.
    pub(super) fn give_up(&mut self) {
        let now = self.now();
        let late = |arriving: &Arriving| arriving.until.filter(|(at, _)| *at <= now);
        let late: Vec<_> =
            self.arriving.iter().filter_map(|(&id, arriving)| Some((id, late(arriving)?.1))).collect();
        for (tenant, timeout) in late {
            let Some(arriving) = self.arriving.remove(&tenant) else { continue };
            let (gpu, waited) = (arriving.gpu, quantity::Span(timeout));
            let reason = format!("it waited {waited} at the door of GPU {gpu}: {}", arriving.reason());
            tracing::warn!("process {} gives up: {reason}", arriving.pid());
            let _ = arriving.newcomer.connection.send(&FromDaemon::GaveUp { reason }, &[]);
            self.leave_with_nothing(tenant);
        }
    }

    /// Someone at the door can never come in.
    pub(super) fn refuse(&mut self, tenant: TenantId, reason: &str) {
        if let Some(arriving) = self.arriving.remove(&tenant) {
            turn_away(&arriving.newcomer, reason);
            self.end_job_of(tenant);
        }
    }

    /// Strikes off someone who went away before it was let in.
    pub(super) fn desert(&mut self, connection: &Arc<Connection>) {
        let mine = |arriving: &Arriving| Arc::ptr_eq(&arriving.newcomer.connection, connection);
        let gone = self.arriving.iter().find(|(_, arriving)| mine(arriving)).map(|(&tenant, _)| tenant);
        if let Some(tenant) = gone {
            self.arriving.remove(&tenant);
            self.leave_with_nothing(tenant);
        }
    }

    /// Someone at the door is let in.
    pub(super) fn welcome(&mut self, tenant: TenantId) {
        let Some(Arriving { newcomer, gpu, .. }) = self.arriving.remove(&tenant) else { return };
        let Newcomer { process, domain, job, program, connection, answer, .. } = newcomer;
        let home = self.jobs.of(tenant);
        let meeting = Meeting { tenant, gpu, frozen: false, resident: true };
        let pid = process.pid;
        let Met { grip, outgoing, first_word, welcome } = match self.meet(&connection, &meeting) {
            Ok(met) => met,
            Err(cause) => {
                tracing::error!("process {pid} ({program}) cannot be let in: {cause:#}");
                connection.shut_down();
                self.leave_with_nothing(tenant);
                return;
            }
        };
        first_word.say(welcome.0, vec![welcome.1]);
        let link = Link { who: Who { tenant, pid, job }, process, domain, grip: grip.clone(), outgoing };
        self.executor(gpu).order(Work::Join(tenant, link.clone(), process));
        let (idleness, hinting, toll, demands, pins) = Default::default();
        let contexts = Recent::default();
        let known = Known {
            link,
            gpu,
            program,
            came_back: None,
            context: false,
            idleness,
            hinting,
            toll,
            demands,
            pins,
            contexts,
        };
        self.known.insert(tenant, known);
        if let Some(home) = home {
            self.tell_of_memory(home);
            self.tell_of_class(home);
        }
        self.note("joined", tenant, json!({ "gpu": gpu.0 }));
        let _ = answer.send(Taken { tenant, grip, replies: self.executor(gpu).replies.clone() });
    }
}

/// How somebody begins who is taken in.
pub(super) struct Meeting {
    pub(super) tenant: TenantId,
    pub(super) gpu: GpuId,
    /// It is frozen.
    pub(super) frozen: bool,
    /// All of its memory is on the device.
    pub(super) resident: bool,
}

/// Somebody who can be spoken to, once it is welcomed or told why not.
pub(super) struct Met {
    pub(super) grip: Arc<Grip>,
    pub(super) outgoing: Outgoing,
    pub(super) first_word: FirstWord,
    /// With its page.
    pub(super) welcome: (FromDaemon, Arc<OwnedFd>),
}

impl Daemon {
    /// Makes the page of somebody who is to be taken in.
    pub(super) fn meet(&self, connection: &Arc<Connection>, meeting: &Meeting) -> anyhow::Result<Met> {
        let &Meeting { tenant, gpu, frozen, resident } = meeting;
        let shared = self.gpu(gpu);
        // A program that may have less sees a GPU of that size.
        let limit = self.jobs.of(tenant).map_or(shared.capacity_bytes, |job| self.memory_limit(job, gpu));
        let page = SharedPage::create(self.epoch)?;
        if shared.freezes == Freezes::Launches {
            page.set_holds_launches();
        }
        page.set_memory(limit, 0, shared.residue_bytes);
        page.set_frozen(frozen);
        if !resident {
            page.revoke_residency();
        }
        let (tenant, gpu) = (on_wire(tenant), shared.uuid.clone());
        let welcome = FromDaemon::Welcome { tenant, gpu, capacity_bytes: limit };
        let file = Arc::new(page.file().try_clone_to_owned()?);
        let (outgoing, first_word) = Outgoing::start_after_word(connection.clone())?;
        let grip = match shared.freezes {
            Freezes::Channels => Grip::new(page, self.setup.manager),
            Freezes::Launches => Grip::by_launches(page, self.setup.manager, outgoing.clone()),
        };
        Ok(Met { grip: Arc::new(grip), outgoing, first_word, welcome: (welcome, file) })
    }
}

fn turn_away(newcomer: &Newcomer, reason: &str) {
    tracing::warn!("process {} ({}) is refused: {reason}", newcomer.process.pid, newcomer.program);
    let _ = newcomer.connection.send(&FromDaemon::Refused { reason: reason.into() }, &[]);
}
