//! Deep away: of a paused job whose memory is all out, what is left on the GPU, its contexts, is put away by the driver's own
//! checkpoint (`rota pause --deep`), and brought back before the job is resumed.
//!
//! A step may take seconds, so a thread for each program sees to them ([`steps`]: their order, and what holds at each instant),
//! and asks the driver first how the program stands: so what an earlier worker, or a step that failed, has left is gone on with
//! ([`found`]). Whoever asked is told what became of it ([`awaited`]). Each step has a process of its own, and none is waited
//! for without a bound. Whatever the driver refuses is said, and the program is as it was: paused. How a program stands after a
//! step that was not answered is asked when it is to come back; until then its threads keep out of the driver.
//!
//! A program's context counts for nothing while it is out. It counts again before it comes back, and it comes when there is room:
//! should others have grown so much meanwhile that they would not fit beside it, when they have freed some.

mod awaited;
mod found;
mod said;
mod steps;

use super::{Daemon, Freezes, Input};
use crate::checkpoints::watched::Watched;
use crate::checkpoints::{CheckpointError, Checkpoints, Standing, Step};
use crate::events::nanos;
use crate::executor::{Link, Work};
use crate::grip::FOREIGN;
use awaited::Awaiting;
use sched::{Bytes, Event, Hindrance, JobId, TenantId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use steps::{Failure, LetGo, STOPPED, Why, fetch, send, sorted_out};
use wire::NotDeep;

/// How long after a failure it is tried again to bring somebody back; twice as long after the next one.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether there is room for somebody.
const LOOK: Duration = Duration::from_millis(100);

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Off the GPU.
    Out,
    /// Back.
    In,
}

/// What became of a program that was to go or to come.
#[derive(Debug)]
pub struct Told {
    tenant: TenantId,
    way: Way,
    /// Or how one of an earlier worker's stands.
    found: bool,
    /// How it stands now, or why not otherwise.
    became: Result<Standing, Failure>,
    took: Duration,
    /// What the driver did for it, and how long each took.
    steps: Vec<(Step, Duration)>,
}

#[derive(Debug)]
enum Stay {
    /// On its way.
    Going(Way),
    /// It has nothing on the GPU; its context would take so much. Where it could not be brought back: when that is tried
    /// again, and why.
    Out { residue: Bytes, failed: Option<(Instant, String)> },
    /// Nobody knows, for this reason.
    Unsure(String),
    /// It is on the GPU, for this reason.
    Refused(Why),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Deep {
    stays: BTreeMap<TenantId, Stay>,
    /// What their contexts took before.
    residues: BTreeMap<TenantId, Bytes>,
    /// How long it takes until it is tried again to bring one back, after the last failure.
    pauses: BTreeMap<TenantId, Duration>,
    /// To be resumed when all of theirs are back.
    resuming: Vec<JobId>,
    /// Who waits for what becomes of them.
    awaiting: Vec<Awaiting>,
    inputs: Option<Sender<Input>>,
}

impl Deep {
    /// Threads report there.
    pub(super) fn reporting_to(inputs: Sender<Input>) -> Self {
        Self { inputs: Some(inputs), ..Self::default() }
    }

    pub(super) fn forget(&mut self, tenant: TenantId) {
        self.stays.remove(&tenant);
        self.residues.remove(&tenant);
        self.pauses.remove(&tenant);
    }

    /// It cannot be brought back: how long it is not tried again.
    fn failed_to_fetch(&mut self, tenant: TenantId, why: &str) -> Duration {
        if why == STOPPED {
            // Nothing was tried: that costs nothing.
            return AGAIN_AFTER;
        }
        let pause = self.pauses.get(&tenant).map_or(AGAIN_AFTER, |last| (*last * 2).min(AGAIN_AFTER_MAX));
        self.pauses.insert(tenant, pause);
        pause
    }

    /// Whether what NVML shows of a tenant says nothing of its context.
    pub(super) fn is_away(&self, tenant: TenantId) -> bool {
        matches!(self.stays.get(&tenant), Some(Stay::Going(_) | Stay::Out { .. } | Stay::Unsure(_)))
    }
}

impl Daemon {
    /// Why a job cannot be paused so deeply, if it cannot.
    pub(super) fn cannot_go_deep(&self, job: JobId) -> Option<String> {
        let several = self.jobs.get(job).is_some_and(|job| job.several);
        let its = self.members(job).into_iter().filter_map(|tenant| self.known.get(&tenant));
        let mut gpus = its.map(|known| self.gpu(known.gpu));
        let holds = gpus.any(|gpu| gpu.freezes == Freezes::Launches);
        match () {
            () if self.setup.checkpoints.is_none() => Some("there is no driver that could do that".into()),
            () if several => Some("its programs are on several GPUs".into()),
            () if holds => Some("programs cannot be frozen there, and hold back their launches".into()),
            () => None,
        }
    }

    /// From now on a job gives up its contexts too when it is paused, or not any more.
    pub(super) fn set_deep(&mut self, job: JobId, deep: bool) {
        let was = self.jobs.get_mut(job).map(|job| std::mem::replace(&mut job.deep, deep));
        if was != Some(deep) {
            self.step(Event::Deep { job, deep });
            let its = self.members(job);
            self.deep
                .stays
                .retain(|tenant, stay| !(matches!(stay, Stay::Refused(_)) && its.contains(tenant)));
        }
    }

    /// A job may run again, as soon as all of its programs are back.
    pub(super) fn resume_when_back(&mut self, job: JobId) {
        if !self.deep.resuming.contains(&job) {
            self.deep.resuming.push(job);
        }
        self.look_deep();
    }

    /// It shall not run after all: nothing is kept free any more for what of it is out.
    pub(super) fn resume_no_more(&mut self, job: JobId) {
        self.deep.resuming.retain(|other| *other != job);
        for tenant in self.members(job) {
            self.deep.pauses.remove(&tenant);
            if let Some(Stay::Out { failed, .. }) = self.deep.stays.get_mut(&tenant) {
                // Asked for once more, it is not to wait for long.
                if let Some((again, _)) = failed {
                    *again = Instant::now();
                }
                self.step(Event::Residue { tenant, bytes: Bytes::ZERO });
            }
        }
    }

    /// Sends and fetches whom it is time for.
    pub(super) fn look_deep(&mut self) {
        let deep: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.deep && job.paused && !job.several)
            .map(|(id, _)| id)
            .collect();
        for tenant in deep.iter().flat_map(|&job| self.members(job)).collect::<Vec<_>>() {
            if self.deep.stays.contains_key(&tenant) {
                continue;
            }
            // Nobody has seen yet what the driver does with memory of another process, or that another process has.
            if self.publications.is_opener(tenant) {
                self.is_refused(tenant, Why::new(NotDeep::Shared, FOREIGN));
                continue;
            }
            match self.core.hinders_deep(tenant) {
                None => self.go(tenant, Way::Out),
                Some(why @ Hindrance::Shared(_)) => {
                    self.is_refused(tenant, Why::new(NotDeep::Shared, said::words(why)));
                }
                Some(_) => {}
            }
        }
        for job in std::mem::take(&mut self.deep.resuming) {
            let waiting = self.members(job).into_iter().filter(|tenant| self.deep.is_away(*tenant));
            let waiting: Vec<TenantId> = waiting.collect();
            if waiting.is_empty() {
                self.step(Event::Resume(job));
                continue;
            }
            waiting.into_iter().for_each(|tenant| self.fetch_if_room(tenant));
            self.deep.resuming.push(job);
        }
        self.answer_deep();
    }

    fn fetch_if_room(&mut self, tenant: TenantId) {
        let (residue, again) = match self.deep.stays.get(&tenant) {
            Some(Stay::Out { residue, failed }) => (*residue, failed.as_ref().map(|(again, _)| *again)),
            Some(Stay::Unsure(_)) => (Bytes::ZERO, None),
            _ => return,
        };
        if again.is_some_and(|again| again > Instant::now()) {
            return;
        }
        let Some(gpu) = self.known.get(&tenant).map(|known| known.gpu) else { return };
        if self.counted(tenant) < residue {
            self.step(Event::Residue { tenant, bytes: residue });
        }
        // Less than that counts where somebody has grown so much meanwhile that both would not fit.
        if self.counted(tenant) >= residue && self.core.has_room(gpu) {
            self.go(tenant, Way::In);
        }
    }

    /// What its context counts as.
    fn counted(&self, tenant: TenantId) -> Bytes {
        self.core.describe(tenant, self.now()).map(|described| described.residue).unwrap_or_default()
    }

    fn members(&self, job: JobId) -> Vec<TenantId> {
        self.jobs.get(job).map(|job| job.members.iter().copied().collect()).unwrap_or_default()
    }

    /// When to look again, though nothing happened.
    pub(super) fn deep_wakes_within(&self) -> Option<Duration> {
        let looks = (!self.deep.resuming.is_empty()).then_some(LOOK);
        looks.into_iter().chain(self.deep.answers_within()).min()
    }

    fn go(&mut self, tenant: TenantId, way: Way) {
        if way == Way::Out {
            self.deep.residues.insert(tenant, self.counted(tenant));
        }
        match way {
            Way::Out => self.on_a_thread(tenant, way, false, send),
            Way::In => self.on_a_thread(tenant, way, false, fetch),
        }
    }

    /// Has a thread see to a program, and report.
    fn on_a_thread(
        &mut self,
        tenant: TenantId,
        way: Way,
        found: bool,
        see_to: fn(&dyn Checkpoints, &Link, LetGo<'_>) -> Result<Standing, Failure>,
    ) {
        let (Some(checkpoints), Some(inputs)) = (self.setup.checkpoints.clone(), self.deep.inputs.clone())
        else {
            return;
        };
        let Some(known) = self.known.get(&tenant) else { return };
        let (link, executor) = (known.link.clone(), self.executor(known.gpu).clone());
        self.deep.stays.insert(tenant, Stay::Going(way));
        let report = inputs.clone();
        let work = move || {
            let begin = Instant::now();
            let let_go = || {
                let (answer, answered) = std::sync::mpsc::channel();
                executor.order(Work::ForgetHosted(tenant, answer));
                answered.recv().unwrap_or(false)
            };
            let (became, steps) = match Watched::new(checkpoints, link.process) {
                Ok(checkpoints) => (see_to(&checkpoints, &link, &let_go), checkpoints.taken()),
                // Of one that nobody could ask about nothing is known.
                Err(error @ CheckpointError::NoHelper { .. }) if found => {
                    (Err(Failure::Unsure(error.to_string())), Vec::new())
                }
                Err(error) => (Err(sorted_out(error)), Vec::new()),
            };
            let told = Told { tenant, way, found, became, took: begin.elapsed(), steps };
            let _ = report.send(Input::Deep(told));
        };
        if let Err(cause) = std::thread::Builder::new().name("deep".into()).spawn(work) {
            let why = format!("no thread can be had: {cause}");
            let became = Err(match found {
                true => Failure::Unsure(why),
                false => Failure::Refused(Why::new(NotDeep::Other, why)),
            });
            let told = Told { tenant, way, found, became, took: Duration::ZERO, steps: Vec::new() };
            let _ = inputs.send(Input::Deep(told));
        }
    }

    /// A thread has done what it could.
    pub(super) fn went_deep(&mut self, told: Told) {
        let tenant = told.tenant;
        if !self.known.contains_key(&tenant) {
            return self.deep.forget(tenant);
        }
        match told.found {
            true => self.is_found(told),
            false => self.has_gone(told),
        }
        self.look_deep();
    }

    fn has_gone(&mut self, told: Told) {
        let Told { tenant, way, became, took, steps, .. } = told;
        match became {
            Ok(Standing::Running) => {
                self.is_back(tenant);
                self.note("deep_back", tenant, times(took, &steps));
            }
            Ok(Standing::Out) => {
                let fields = self.put_away(tenant, took, &steps);
                self.note("deep", tenant, fields);
            }
            Ok(Standing::Locked | Standing::Failed) => unreachable!("no end of its way"),
            Err(Failure::Unsure(why)) if way == Way::Out => self.is_unsure(tenant, why),
            Err(Failure::Refused(why)) if way == Way::Out => self.is_refused(tenant, why),
            Err(failure) => {
                let why = failure.why();
                let residue = self.deep.residues.get(&tenant).copied().unwrap_or_default();
                let again = Instant::now() + self.deep.failed_to_fetch(tenant, &why);
                self.note("error", tenant, json!({ "what": format!("cannot be brought back: {why}") }));
                tracing::error!("tenant {tenant}: cannot be brought back, which is tried again: {why}");
                self.deep.stays.insert(tenant, Stay::Out { residue, failed: Some((again, why)) });
            }
        }
    }

    /// It is as before it was put away.
    fn is_back(&mut self, tenant: TenantId) {
        self.deep.forget(tenant);
        let channels = self.known.get(&tenant).map_or(0, |known| known.link.grip.channels());
        self.has_channels(tenant, channels > 0);
    }

    /// It is as after a plain pause, for this reason.
    fn is_refused(&mut self, tenant: TenantId, why: Why) {
        tracing::warn!("tenant {tenant}: its context stays on the GPU: {}", why.full);
        self.note("deep_refused", tenant, json!({ "why": why.full }));
        self.deep.stays.insert(tenant, Stay::Refused(why));
    }

    /// Nobody knows what of it is on the GPU, so its context counts.
    fn is_unsure(&mut self, tenant: TenantId, why: String) {
        tracing::error!("tenant {tenant}: it is not known whether its context is put away: {why}");
        self.note("deep_refused", tenant, json!({ "why": why }));
        self.deep.stays.insert(tenant, Stay::Unsure(why));
    }

    /// It has nothing on the GPU any more. Returns what to note of it.
    fn put_away(&mut self, tenant: TenantId, took: Duration, steps: &[(Step, Duration)]) -> Value {
        let usual = self.known.get(&tenant).map(|known| Bytes(self.gpu(known.gpu).residue_bytes));
        let residue = *self.deep.residues.entry(tenant).or_insert(usual.unwrap_or_default());
        self.deep.stays.insert(tenant, Stay::Out { residue, failed: None });
        self.step(Event::Residue { tenant, bytes: Bytes::ZERO });
        let mut fields = times(took, steps);
        fields["residue_bytes"] = residue.0.into();
        fields
    }
}

/// How long all took, and what of it was the driver's.
fn times(took: Duration, steps: &[(Step, Duration)]) -> Value {
    let mut fields = json!({ "took_ns": nanos(took) });
    for (step, took) in steps {
        let name = match step {
            Step::Lock => "lock_ns",
            Step::Out => "out_ns",
            Step::In => "in_ns",
            Step::Unlock => "unlock_ns",
        };
        fields[name] = nanos(*took).into();
    }
    fields
}

/// What brings programs of a worker that is gone back, and puts away others.
pub type ByWhom = Option<Arc<dyn Checkpoints>>;
