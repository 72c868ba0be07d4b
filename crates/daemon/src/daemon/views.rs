//! How things are, in full: `rota status` and `rota describe`.

use super::Daemon;
use super::commands::Peer;
use super::jobs::Job;
use super::limits::Refusal;
use super::listing::state;
use super::toll::SHOWN_MAX;
use crate::events::nanos;
use crate::names::on_wire;
use sched::{Described, GpuId, JobId, Span, State, TenantId};
use std::collections::BTreeMap;
use wire::quantity::Share;
use wire::{Answer, Class, Description, GpuView, JobView, SCHEMA_VERSION, Status, TenantState, TenantView};

/// The most jobs of a GPU in one answer, so that it fits into a message.
const JOBS_MAX: usize = 64;

/// The most forecasts in one answer that look far ahead: each is a rehearsal, and turns wait for it meanwhile.
const FORECASTS_MAX: usize = 4;

impl Daemon {
    pub(super) fn status(&self) -> Status {
        let (rules, about) = (&self.setup.rules, &self.setup.about);
        let listing = self.bare_listing();
        let count = |states: &[TenantState]| {
            let found = listing.tenants.iter().filter(|tenant| states.contains(&tenant.state));
            u32::try_from(found.count()).unwrap_or(u32::MAX)
        };
        let waiting = listing.tenants.iter().filter(|tenant| tenant.waiting_ns > 0).count();
        Status {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: about.supervisor_pid.unwrap_or_else(std::process::id),
            uid: rustix::process::geteuid().as_raw(),
            uptime_ns: nanos(self.events.now()),
            config: self.setup.about.config.clone(),
            policy: format!("{:?}", rules.settings.policy).to_lowercase(),
            turn_min_ns: rules.settings.turn_min.0,
            turn_max_ns: rules.settings.turn_max.0,
            idle_exit_ns: self.setup.about.idle_exit.map(nanos),
            self_test: self.setup.about.self_test,
            jobs: u32::try_from(self.jobs.iter().count()).unwrap_or(u32::MAX),
            tenants: u32::try_from(listing.tenants.len()).unwrap_or(u32::MAX),
            running: count(&[TenantState::Running]),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            gpus: listing.gpus,
            worker_pid: std::process::id(),
            worker_restarts: about.restarts,
            keeper_pid: about.keeper_pid.filter(|_| self.arena.lost().is_none()),
        }
    }

    /// All about a job, a process or a GPU, whatever is called so.
    pub(super) fn describe(&self, peer: Peer, what: &str) -> Result<Answer, Refusal> {
        if let Some(gpu) = self.named_gpu(what) {
            return Ok(self.described_gpu(gpu));
        }
        match self.find_job(peer, what) {
            Ok(id) => {
                let by_name = self.jobs.get(id).is_some_and(|job| job.name == what);
                // A process on several GPUs is several tenants.
                let one = what.parse().ok().filter(|&pid| !by_name && self.tenant_of(pid).is_some());
                Ok(self.description(None, vec![id], one))
            }
            // An index is the least of all names.
            Err(refusal) => match self.gpus().find(|(gpu, _)| what == gpu.0.to_string()) {
                Some((gpu, _)) => Ok(self.described_gpu(gpu)),
                None => Err(refusal),
            },
        }
    }

    pub(super) fn described_job(&self, id: JobId) -> Answer {
        self.description(None, vec![id], None)
    }

    fn described_gpu(&self, gpu: GpuId) -> Answer {
        let here = |tenant: &TenantId| self.gpu_of(*tenant) == Some(gpu);
        let jobs = self.jobs.iter().filter(|(_, job)| job.members.is_empty() || job.members.iter().any(here));
        self.description(Some(self.gpu_view(gpu)), jobs.map(|(id, _)| id).collect(), None)
    }

    fn description(&self, gpu: Option<GpuView>, jobs: Vec<JobId>, only: Option<u32>) -> Answer {
        let jobs = jobs.into_iter().take(JOBS_MAX).filter_map(|id| self.jobs.get(id));
        let mut jobs: Vec<JobView> = jobs.map(|job| self.job_view(job, only)).collect();
        if jobs.iter().map(|job| job.tenants.len()).sum::<usize>() > SHOWN_MAX {
            jobs.iter_mut().flat_map(|job| &mut job.tenants).for_each(|tenant| tenant.statistics = None);
        }
        let waiting = jobs.iter_mut().flat_map(|job| &mut job.tenants).filter(|tenant| tenant.waiting_ns > 0);
        let mut waiting = waiting.peekable();
        let outlook = if waiting.peek().is_some() { self.outlook() } else { BTreeMap::new() };
        let mut further = 0;
        for tenant in waiting {
            let id = TenantId(tenant.tenant.0.into());
            let Some(outlook) = outlook.get(&id) else { continue };
            (tenant.place, tenant.places) = (outlook.place, Some(outlook.of));
            let (now, waited) = (self.now(), Span(tenant.waiting_ns));
            let mut forecast = outlook.forecast;
            if forecast.is_none() && further < FORECASTS_MAX {
                further += 1;
                forecast = self.core.forecast(id, now);
            }
            tenant.forecast_ns = self.promises.worth_saying(id, now, waited, forecast).map(|span| span.0);
        }
        Answer::Described(Description { schema_version: SCHEMA_VERSION, gpu, jobs })
    }

    /// The GPU that is called so: by the beginning of its UUID, if that is of one only, or as in gpu0.
    pub(super) fn named_gpu(&self, what: &str) -> Option<GpuId> {
        let is_uuid = |uuid: &str| what.len() > "GPU-".len() && uuid.starts_with(what);
        let mut named = self.gpus().filter(|(number, gpu)| {
            is_uuid(&gpu.uuid) || what.eq_ignore_ascii_case(&format!("gpu{}", number.0))
        });
        named.next().filter(|_| named.next().is_none()).map(|(number, _)| number)
    }

    /// The GPU of a tenant, let in or at the door.
    pub(super) fn gpu_of(&self, tenant: TenantId) -> Option<GpuId> {
        let known = self.known.get(&tenant).map(|known| known.gpu);
        let arriving = || self.arriving.get(&tenant).map(|arriving| arriving.gpu());
        known.or_else(arriving).or_else(|| Some(self.returning.get(&tenant)?.gpu()))
    }

    /// The tenant that a process is, let in or at the door.
    pub(super) fn tenant_of(&self, pid: u32) -> Option<TenantId> {
        let known = self.known.iter().find(|(_, known)| known.link.who.pid == pid).map(|(&id, _)| id);
        known.or_else(|| self.arriving.iter().find(|(_, arriving)| arriving.pid() == pid).map(|(&id, _)| id))
    }

    fn gpu_view(&self, number: GpuId) -> GpuView {
        let gpu = self.listed_gpu(number);
        let view = self.core.gpu(number);
        let settings = &self.setup.rules.settings;
        let stays_bytes = view.as_ref().map_or(0, |view| view.stays.0);
        let turn = view.as_ref().and_then(|view| view.running).and_then(|tenant| self.known.get(&tenant));
        GpuView {
            index: number.0.into(),
            uuid: gpu.uuid,
            name: gpu.name,
            capacity_bytes: gpu.capacity_bytes,
            used_bytes: gpu.used_bytes,
            reserve_bytes: self.gpu(number).reserve_bytes,
            unmanaged_bytes: view.map_or(0, |view| view.unmanaged.0),
            arena_bytes: gpu.arena_bytes,
            arena_used_bytes: gpu.arena_used_bytes,
            arena_clean_bytes: gpu.arena_clean_bytes,
            vgpu: gpu.vgpu,
            turn_of_pid: turn.map(|known| known.link.who.pid),
            favour: crate::config::Favour::from(settings.favour).to_string(),
            be_guarantee_millionths: settings.be_guarantee.0,
            stays_bytes,
            lc_mode: self.lc_modes.of(number, self.now()),
        }
    }

    fn job_view(&self, job: &Job, only: Option<u32>) -> JobView {
        let now = self.now();
        let tenants: Vec<TenantView> =
            job.members.iter().filter_map(|&tenant| self.tenant_view(tenant, job)).collect();
        // As the limit counts it: wherever it lies just now.
        let has = |tenant: &TenantView| {
            tenant.resident_bytes + tenant.away_bytes + tenant.context_bytes + tenant.host_bytes
        };
        let used = tenants.iter().map(has).sum();
        let asked = |tenant: &TenantView| only.is_none_or(|pid| pid == tenant.pid);
        JobView {
            job: job.name.clone(),
            uid: job.uid,
            terms: job.terms.clone(),
            paused: job.paused,
            placed: job.placed.clone(),
            root_pid: job.roots.first().map(|root| root.pid),
            age_ns: now.since(job.began).0,
            used_bytes: used,
            ran_ns: self.jobs.ran_of(job, now).0,
            tenants: tenants.into_iter().filter(asked).collect(),
        }
    }

    fn tenant_view(&self, tenant: TenantId, job: &Job) -> Option<TenantView> {
        let now = self.now();
        let described = self.core.describe(tenant, now)?;
        let (pid, program, at_door) = match (self.known.get(&tenant), self.arriving.get(&tenant)) {
            (Some(known), _) => (known.link.who.pid, known.program.clone(), None),
            (None, Some(arriving)) => (arriving.pid(), arriving.program().into(), Some(arriving.reason())),
            (None, None) => return None,
        };
        let gpu = self.gpu(self.gpu_of(tenant)?);
        let reason = match at_door {
            Some(reason) => format!("waits at the door: {reason}"),
            None => self.reason(tenant, &described, job),
        };
        Some(TenantView {
            tenant: on_wire(tenant),
            pid,
            program,
            gpu: gpu.uuid.clone(),
            state: state(&described),
            reason,
            resident_bytes: described.resident.0,
            away_bytes: described.away.0,
            context_bytes: if at_door.is_some() { 0 } else { described.residue.0 },
            turns: described.turns,
            ran_ns: self.jobs.ran(tenant, now).0,
            waiting_ns: described.waiting.0,
            forecast_ns: None,
            pinned_bytes: described.pinned.0,
            place: None,
            places: None,
            host_bytes: described.host.0,
            hints: self.hints_of(tenant, &described),
            statistics: self.statistics_of(tenant),
            rehomed_bytes: described.rehomed.0,
        })
    }

    /// Why it does what it does.
    fn reason(&self, tenant: TenantId, described: &Described, job: &Job) -> String {
        let turn = self.gpu_of(tenant).and_then(|gpu| self.core.gpu(gpu)).and_then(|view| view.running);
        let holder = turn.filter(|&holder| holder != tenant).and_then(|holder| self.known.get(&holder));
        match described.state {
            State::Queued => "waits at the door".into(),
            State::Joined => "has no context on the GPU yet".into(),
            State::Running if turn == Some(tenant) => "has its turn".into(),
            State::Running if job.terms.class == Class::LatencyCritical => {
                "is latency-critical: runs whenever it has work".into()
            }
            State::Running => "runs beside the one whose turn it is".into(),
            State::Paused => {
                let how = match job.paused {
                    true => format!("its job is paused; `rota resume {}` lets it go on", job.name),
                    false => "its job goes on as soon as all of it is back".into(),
                };
                match self.deep_words(tenant, job) {
                    Some(said) => format!("{how}; {said}"),
                    None => how,
                }
            }
            State::Moving => "its memory is on its way".into(),
            State::Frozen | State::Away if described.waiting.0 == 0 => "has nothing to do".into(),
            State::Frozen | State::Away => match holder {
                Some(known) => {
                    let who = &known.link.who;
                    format!("waits for its turn; job {} (process {}) has it now", who.job, who.pid)
                }
                None => match job.terms.cores_max_millionths {
                    Some(most) => {
                        format!("has had its share: at most {} of the time", Share::of_millionths(most))
                    }
                    None => "waits for its turn; the GPU is being handed over".into(),
                },
            },
        }
    }
}
