//! What a job may have because of the programs that it runs.
//!
//! `rota run` asks for a job before its program is there, and a job may have several. So as much is allowed first as any
//! program could have; and whenever one comes, the job's terms must be such as that one may have too. What was asked for and
//! is more is refused then, to that program; what was not becomes less.

use super::Daemon;
use super::jobs::Job;
use super::limits::{Refusal, in_core, within};
use crate::config::rules::{Limits, Said};
use crate::executable::{Executable, Seen};
use sched::{Event, JobId, TenantId};
use serde_json::json;
use wire::{Change, Terms};

/// What may be had, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) limits: Limits,
    /// For people.
    pub(super) whom: String,
}

impl Allowed {
    /// By this user, whatever the program.
    pub(super) fn of(limits: Limits) -> Self {
        Self { limits, whom: "this user".into() }
    }
}

impl Daemon {
    /// What may be asked for while nobody knows which program it will be.
    pub(super) fn allowed_before(&self, said: &Said) -> Allowed {
        Allowed::of(said.most(&self.setup.about.rules.commands))
    }

    /// What may be asked for by a job, which may be there already: no more than each of its programs may have.
    pub(super) fn allowed_to(&self, said: &Said, job: Option<&Job>) -> Allowed {
        let programs = job.into_iter().flat_map(|job| job.programs.values());
        let each = programs.map(|program| self.allowed_with(said, program));
        let strictest = each.reduce(|one, other| {
            let limits = one.limits.stricter(other.limits, self.capacity_bytes());
            // Whoever is named is one that makes it as it is.
            let whom = if limits == one.limits { one.whom } else { other.whom };
            Allowed { limits, whom }
        });
        strictest.unwrap_or_else(|| self.allowed_before(said))
    }

    fn allowed_with(&self, said: &Said, program: &Executable) -> Allowed {
        let rules = &self.setup.about.rules.commands;
        match rules.limits_of(program, self.capacity_bytes()) {
            None => Allowed::of(said.limits()),
            Some(command) => Allowed {
                limits: said.limits_with(command, program.guarded),
                whom: format!("this user's {}", program.path.display()),
            },
        }
    }

    /// The terms that a job has with one more program, if it may come with those.
    pub(super) fn terms_beside(
        &self,
        job: JobId,
        uid: u32,
        pid: u32,
        program: &Seen,
    ) -> Result<Terms, Refusal> {
        let job = self.jobs.get(job).expect("it is there, or has just begun");
        if self.setup.about.rules.commands.is_empty() {
            return Ok(job.terms.clone());
        }
        let program = program.as_ref().map_err(|cause| {
            let reason =
                format!("there are rules for commands, and that of process {pid} cannot be told: {cause}");
            Refusal::new(reason, "let the daemon see all of /proc")
        })?;
        let allowed = self.allowed_with(&self.said_of(uid, pid)?, program);
        // The rest is what it is only because it was asked for.
        let Change { memory, cores_millionths, priority, .. } = job.asked.clone();
        let asked = Change { memory, cores_millionths, priority, ..Change::default() };
        within(&allowed, &job.terms, &asked, self.room())
    }

    /// Gives a job terms that are not those it has because of the program that comes.
    pub(super) fn lower_terms(&mut self, id: JobId, terms: Terms) {
        let Some(job) = self.jobs.get(id).filter(|job| job.terms != terms) else { return };
        let (core_terms, name) = (in_core(job.uid, &terms, job.several), job.name.clone());
        if let Some(job) = self.jobs.get_mut(id) {
            job.terms = terms;
        }
        self.step(Event::Job { job: id, terms: core_terms });
        self.tell_of_memory(id);
        self.events.note("lowered", json!({ "job": name }));
    }

    /// Remembers what a tenant runs, if anything depends on it.
    pub(super) fn note_program(&mut self, job: JobId, tenant: TenantId, program: &Seen) {
        if let (Some(job), Ok(program)) = (self.jobs.get_mut(job), program) {
            job.programs.insert(tenant, program.clone());
        }
    }
}
