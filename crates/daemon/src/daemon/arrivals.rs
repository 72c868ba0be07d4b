//! How tenants come: connections are accepted, and whoever says hello is refused, let in, or waits at the door.

use super::demands::Demands;
use super::idleness::Idleness;
use super::limits::in_core;
use super::sights::Recent;
use super::{Daemon, Known, Newcomer};
use crate::conversation::{self, Ears, Taken};
use crate::events::Who;
use crate::executor::{Link, Work};
use crate::grip::Grip;
use crate::names::{TENANT_NUMBER_MAX, on_wire};
use crate::outgoing::Outgoing;
use sched::{Bytes, Event, GpuId, TenantId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use wire::{Connection, FromDaemon, Listener, SharedPage};

/// Connections at a time: tenants, those that linger, and people who ask. Each is a thread and a few files.
const CONNECTIONS_MAX: usize = 1024;

/// Someone at the door.
#[derive(Debug)]
pub(super) struct Arriving {
    newcomer: Newcomer,
    gpu: GpuId,
    /// What it was told to wait for, which is said once.
    told: Option<String>,
}

impl Arriving {
    /// The GPU that it will be on.
    pub(super) fn gpu(&self) -> GpuId {
        self.gpu
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.newcomer.pid
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
    let open = Arc::new(AtomicUsize::new(0));
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
        if open.load(Relaxed) >= CONNECTIONS_MAX {
            tracing::warn!("a connection is refused: there are {CONNECTIONS_MAX} already");
            continue;
        }
        let (ears, mine) = (ears.clone(), open.clone());
        open.fetch_add(1, Relaxed);
        let holder = std::thread::Builder::new().name("conversation".into());
        let held = holder.spawn(move || {
            conversation::hold(connection, &ears);
            mine.fetch_sub(1, Relaxed);
        });
        if let Err(cause) = held {
            open.fetch_sub(1, Relaxed);
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
            let shared: Vec<&str> = self.setup.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
            let (seen, shared) = (newcomer.gpus.join(", "), shared.join(", "));
            return turn_away(&newcomer, &format!("it sees {seen}, and shared here is {shared}"));
        };
        let Newcomer { uid, pid, job: name, .. } = &newcomer;
        let job = match self.jobs.named(*uid, name) {
            Some(job) => job,
            None => {
                // Not started by `rota run`: it gets what is usual.
                let terms = match self.usual_terms(*uid, *pid) {
                    Ok(terms) => terms,
                    Err(refusal) => return turn_away(&newcomer, &refusal.reason),
                };
                let core_terms = in_core(*uid, &terms);
                let job = self.jobs.begin(*uid, name, terms, self.now());
                self.step(Event::Job { job, terms: core_terms });
                job
            }
        };
        let tenant = TenantId(self.next_tenant);
        self.next_tenant += 1;
        self.jobs.join(job, tenant);
        self.arriving.insert(tenant, Arriving { newcomer, gpu, told: None });
        let residue = Bytes(self.gpu(gpu).residue_bytes);
        self.step(Event::Arrived { tenant, job, gpu, residue });
        self.keep_waiting(tenant, "room is being made for its context".into());
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
            tracing::info!("process {} waits at the door: {reason}", arriving.newcomer.pid);
            let _ = arriving.newcomer.connection.send(&FromDaemon::Waiting { reason }, &[]);
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
        let Newcomer { pid, job, program, connection, answer, .. } = newcomer;
        let shared = self.gpu(gpu);
        let home = self.jobs.of(tenant);
        // A program that may have less sees a GPU of that size.
        let limit = home.map_or(shared.capacity_bytes, |job| self.memory_limit(job, gpu));
        let welcome =
            FromDaemon::Welcome { tenant: on_wire(tenant), gpu: shared.uuid.clone(), capacity_bytes: limit };
        let begin = || -> anyhow::Result<_> {
            let page = SharedPage::create(self.epoch)?;
            page.set_memory(limit, 0, shared.residue_bytes);
            // One of the first two messages in its queue: this does not wait.
            connection.send(&welcome, &[page.file()])?;
            Ok((Arc::new(Grip::new(page, self.setup.manager)), Outgoing::start(connection.clone())?))
        };
        let (grip, outgoing) = match begin() {
            Ok(begun) => begun,
            Err(cause) => {
                tracing::error!("process {pid} ({program}) cannot be let in: {cause:#}");
                connection.shut_down();
                self.leave_with_nothing(tenant);
                return;
            }
        };
        let link = Link { who: Who { tenant, pid, job }, grip: grip.clone(), outgoing };
        self.executor(gpu).order(Work::Join(tenant, link.clone()));
        let (idleness, demands) = (Idleness::default(), Demands::default());
        let contexts = Recent::default();
        self.known.insert(tenant, Known { link, gpu, program, context: false, idleness, demands, contexts });
        if let Some(home) = home {
            self.tell_of_memory(home);
        }
        self.note("joined", tenant, json!({ "gpu": gpu.0 }));
        let _ = answer.send(Taken { tenant, grip, replies: self.executor(gpu).replies.clone() });
    }
}

fn turn_away(newcomer: &Newcomer, reason: &str) {
    tracing::warn!("process {} ({}) is refused: {reason}", newcomer.pid, newcomer.program);
    let _ = newcomer.connection.send(&FromDaemon::Refused { reason: reason.into() }, &[]);
}
