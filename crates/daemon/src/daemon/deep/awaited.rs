//! Who paused a job so deeply is told what became of it, as soon as that is known.

use super::{Deep, Stay};
use crate::daemon::Daemon;
use crate::daemon::commands::Peer;
use crate::daemon::limits::Refusal;
use sched::{Hindrance, JobId, TenantId};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use wire::Answer;

/// How long somebody waits at most: what takes longer has no end that is known, and who waits keeps a connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Awaiting {
    job: JobId,
    name: String,
    until: Instant,
    answer: Sender<(Answer, Option<JobId>)>,
}

/// How it stands with one program.
#[derive(Debug)]
enum Became {
    /// It has nothing on the GPU.
    Out,
    /// It may go yet; this is what it waits for.
    Going(String),
    /// It stays, for this reason, or nobody knows.
    Stays(String),
}

impl Deep {
    /// When somebody has waited for long enough.
    pub(super) fn answers_within(&self) -> Option<Duration> {
        let until = self.awaiting.iter().map(|awaiting| awaiting.until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

impl Daemon {
    /// Somebody waits for what becomes of a job that was paused so.
    pub(in crate::daemon) fn await_deep(
        &mut self,
        peer: Peer,
        name: String,
        answer: Sender<(Answer, Option<JobId>)>,
    ) {
        match self.own_job(peer, &name) {
            Ok(job) => {
                let until = Instant::now() + ANSWER_WITHIN;
                self.deep.awaiting.push(Awaiting { job, name, until, answer });
                self.answer_deep();
            }
            Err(refusal) => drop(answer.send((refusal.answer(), None))),
        }
    }

    /// Tells those who wait for something that is known by now.
    pub(super) fn answer_deep(&mut self) {
        let (now, mut waiting) = (Instant::now(), Vec::new());
        for awaiting in std::mem::take(&mut self.deep.awaiting) {
            match self.became_of(awaiting.job, &awaiting.name, awaiting.until <= now) {
                None => waiting.push(awaiting),
                // Whoever waited may be gone.
                Some(Ok(())) => drop(awaiting.answer.send((self.described_job(awaiting.job), None))),
                Some(Err(refusal)) => drop(awaiting.answer.send((refusal.answer(), None))),
            }
        }
        self.deep.awaiting = waiting;
    }

    /// What became of a job, if that is known, or nobody is to wait for it any longer.
    fn became_of(&self, id: JobId, name: &str, late: bool) -> Option<Result<(), Refusal>> {
        let Some(job) = self.jobs.get(id) else {
            return Some(Err(Refusal { reason: format!("{name} has ended"), hint: None }));
        };
        if !(job.paused && job.deep) {
            let reason = format!("{name} is not paused so any more: somebody has resumed it");
            return Some(Err(Refusal { reason, hint: None }));
        }
        let became: Vec<(TenantId, Became)> =
            job.members.iter().map(|&tenant| (tenant, self.became(tenant))).collect();
        let goes = became.iter().any(|(_, became)| matches!(became, Became::Going(_)));
        if goes && !late {
            return None;
        }
        let stays = became.into_iter().filter_map(|(tenant, became)| match became {
            Became::Out => None,
            Became::Going(why) | Became::Stays(why) => Some((tenant, why)),
        });
        let mut stays: Vec<(TenantId, String)> = stays.collect();
        if stays.is_empty() {
            return Some(Ok(()));
        }
        let several = job.members.len() > 1;
        let said = stays.iter_mut().map(|(tenant, why)| match self.known.get(tenant) {
            Some(known) if several => format!("process {}: {why}", known.link.who.pid),
            _ => std::mem::take(why),
        });
        let reason = format!("{name} is paused, but not deep: {}", said.collect::<Vec<_>>().join("; "));
        let hint = match goes {
            true => format!("it is still tried; `rota describe {name}` says how it stands"),
            false => format!("it is not tried again before `rota resume {name}`"),
        };
        Some(Err(Refusal::new(reason, hint)))
    }

    fn became(&self, tenant: TenantId) -> Became {
        let words = |why| format!("its context stays on the GPU for now: {}", super::said::words(why));
        match self.deep.stays.get(&tenant) {
            Some(Stay::Out { .. }) => Became::Out,
            Some(Stay::Refused(why)) => Became::Stays(format!("its context stays on the GPU: {}", why.full)),
            Some(Stay::Unsure(why)) => Became::Stays(format!("what is on the GPU of it is not known: {why}")),
            Some(Stay::Going(_)) => Became::Going("its context is being put away".into()),
            None => match self.core.hinders_deep(tenant) {
                Some(Hindrance::NoContext) => Became::Out,
                Some(why @ Hindrance::Reserved) => {
                    Became::Stays(format!("its context stays on the GPU: {}", super::said::words(why)))
                }
                Some(why) => Became::Going(words(why)),
                None => Became::Going("its context is about to be put away".into()),
            },
        }
    }
}
