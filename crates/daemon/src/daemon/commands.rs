//! What people ask for: jobs are begun, changed, paused and resumed. `views` says how things are.

use super::Daemon;
use super::arrivals::Arriving;
use super::limits::{Refusal, in_core};
use crate::reasons;
use sched::{Event, JobId};
use serde_json::json;
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::{Answer, Change, Command, JobRequest, Opened};

/// The most names that a complaint lists.
const NAMED_MAX: usize = 8;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// Whose process.
    pub uid: u32,
}

impl Peer {
    /// Its process's number.
    pub fn pid(self) -> u32 {
        self.process.pid
    }
}

/// Something that is asked.
#[derive(Debug)]
pub struct Asked {
    /// Who.
    pub peer: Peer,
    /// What.
    pub command: Command,
    /// Gets the answer, and the job that the asking process is now a root of.
    pub answer: Sender<(Answer, Option<JobId>)>,
}

impl Daemon {
    pub(super) fn command(&mut self, asked: Asked) {
        let Asked { peer, command, answer } = asked;
        let mut opened = None;
        let done = match command {
            Command::Open(request) => self.open(peer, &request).map(|(job, answer)| {
                opened = Some(job);
                answer
            }),
            Command::Set { job, change } => self.set(peer, &job, &change),
            Command::Pause { job } => self.pause(peer, &job, false),
            Command::PauseDeep { job } => self.pause(peer, &job, true),
            Command::AwaitDeep { job } => return self.await_deep(peer, job, answer),
            Command::Resume { job } => self.resume(peer, &job),
            Command::Describe { what } => self.describe(peer, &what),
            Command::Status => Ok(Answer::Status(self.status())),
            Command::Settings => Ok(Answer::Settings(self.setup.about.settings.clone())),
            Command::Memory { job } => self.memory_of(peer, &job),
        };
        // Whoever asked may be gone: then its job ends when that is noticed.
        let _ = answer.send((done.unwrap_or_else(Refusal::answer), opened));
    }

    /// A process that began a job is gone.
    pub(super) fn root_gone(&mut self, job: JobId, pid: u32) {
        if let Some(over) = self.jobs.root_gone(job, pid) {
            self.step(Event::JobOver(over));
        }
    }

    fn open(&mut self, peer: Peer, request: &JobRequest) -> Result<(JobId, Answer), Refusal> {
        if self.stopping {
            return Err(Refusal { reason: "the daemon is stopping".into(), hint: None });
        }
        let JobRequest { name, asked, usual, gpus, timeout_ns } = request;
        self.free_name_of_the_dead(peer.uid, name);
        let there = self.jobs.named(peer.uid, name);
        let wish = self.wish(peer, there, gpus)?;
        let job = match there {
            Some(job) => self.joinable(job, peer, asked)?,
            None => {
                let wanted = asked.clone().or(usual.clone());
                let terms = self.terms_with(peer.uid, peer.pid(), None, &wanted)?;
                let core_terms = in_core(peer.uid, &terms, false);
                let job = self.jobs.begin(peer.uid, name, terms, self.now());
                if let Some(begun) = self.jobs.get_mut(job) {
                    begun.asked = wanted;
                }
                self.step(Event::Job { job, terms: core_terms });
                self.events.note("opened", json!({ "job": name, "uid": peer.uid, "pid": peer.pid() }));
                job
            }
        };
        let placed = match self.place(job, &wish) {
            Ok(placed) => placed,
            Err(refusal) => {
                self.end_if_empty(job);
                return Err(refusal);
            }
        };
        let others = u32::try_from(self.known.len() + self.arriving.len()).unwrap_or(u32::MAX);
        let gpus = placed.iter().map(|&gpu| self.listed_gpu(gpu)).collect();
        let opened = self.jobs.get_mut(job).expect("it began above, or was there");
        opened.roots.push(peer.process);
        opened.timeout = timeout_ns.map(Duration::from_nanos).or(opened.timeout);
        let terms = opened.terms.clone();
        Ok((job, Answer::Opened(Opened { gpus, others, terms })))
    }

    /// Whoever starts a program again as soon as it has ended may be faster than the daemon hears of that end: the name of a
    /// job of which nobody lives is free.
    fn free_name_of_the_dead(&mut self, uid: u32, name: &str) {
        let Some(id) = self.jobs.named(uid, name) else { return };
        if self.nobody_lives(id)
            && let Some(job) = self.jobs.get_mut(id)
        {
            job.bereft = true;
        }
    }

    /// Have all who began a job and all who are in it ended? Not if that cannot be seen of one of them.
    fn nobody_lives(&self, id: JobId) -> bool {
        let has_ended = |process: &keeper::Process| process.start_ticks > 0 && !process.is_there();
        let known = |tenant| self.known.get(tenant).map(|known| known.link.process);
        let arriving = |tenant| self.arriving.get(tenant).map(Arriving::process);
        let member_has_ended =
            |tenant| known(tenant).or_else(|| arriving(tenant)).is_some_and(|process| has_ended(&process));
        self.jobs
            .get(id)
            .is_some_and(|job| job.roots.iter().all(has_ended) && job.members.iter().all(member_has_ended))
    }

    /// A job that is there has the terms that it has.
    fn joinable(&self, id: JobId, peer: Peer, asked: &Change) -> Result<JobId, Refusal> {
        let job = self.jobs.get(id).expect("it was found by its name");
        let terms = self.terms_with(peer.uid, peer.pid(), Some(id), asked)?;
        if terms == job.terms {
            return Ok(id);
        }
        let name = &job.name;
        Err(Refusal::new(
            format!("job {name} is there already, with other terms"),
            format!(
                "change them with `rota set {name}`, leave them out to join it, or choose another --name"
            ),
        ))
    }

    fn set(&mut self, peer: Peer, name: &str, change: &Change) -> Result<Answer, Refusal> {
        let id = self.own_job(peer, name)?;
        let uid = self.jobs.get(id).expect("it was found by its name").uid;
        // What may be had goes by the groups of whoever has the job, and root's are others.
        let whose = if peer.uid == uid { peer.pid() } else { self.process_of(id).unwrap_or(peer.pid()) };
        self.change_terms(id, whose, change)?;
        Ok(self.described_job(id))
    }

    /// Changes the terms of a job as far as its user may, whose process this is.
    pub(super) fn change_terms(&mut self, id: JobId, whose: u32, change: &Change) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        let (uid, name) = (job.uid, job.name.clone());
        let terms = self.terms_with(uid, whose, Some(id), change)?;
        let core_terms = in_core(uid, &terms, job.several);
        if let Some(why) = self.core.cannot_reserve(id).filter(|_| terms.reserve) {
            let reason = format!("its memory cannot stay on the GPU: {}", reasons::words(why));
            return Err(Refusal::new(reason, "others have more than would fit beside it; see `rota ps`"));
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.terms = terms;
            job.asked = change.clone().or(std::mem::take(&mut job.asked));
        }
        self.step(Event::Job { job: id, terms: core_terms });
        self.tell_of_memory(id);
        self.tell_of_class(id);
        self.events.note("set", json!({ "job": name, "change": change }));
        Ok(())
    }

    /// Pauses a job; deeply, if it is to give up its contexts too.
    fn pause(&mut self, peer: Peer, name: &str, deep: bool) -> Result<Answer, Refusal> {
        let id = self.own_job(peer, name)?;
        if let Some(reason) = self.cannot_go_deep(id).filter(|_| deep) {
            let reason = format!("{name} cannot give up its contexts: {reason}");
            return Err(Refusal::new(reason, "leave --deep out: only its memory makes room then"));
        }
        let job = self.jobs.get_mut(id).expect("it was found by its name");
        if !std::mem::replace(&mut job.paused, true) {
            self.resume_no_more(id);
            self.step(Event::Pause(id));
            self.events.note("paused", json!({ "job": name, "deep": deep }));
        }
        if deep {
            self.set_deep(id, true);
        }
        // What was answered holds for the next worker too.
        self.leave_jobs();
        Ok(self.described_job(id))
    }

    fn resume(&mut self, peer: Peer, name: &str) -> Result<Answer, Refusal> {
        let id = self.own_job(peer, name)?;
        self.set_deep(id, false);
        let job = self.jobs.get_mut(id).expect("it was found by its name");
        if std::mem::replace(&mut job.paused, false) {
            self.events.note("resumed", json!({ "job": name }));
            self.resume_when_back(id);
        }
        self.leave_jobs();
        Ok(self.described_job(id))
    }

    /// A living process of a job.
    fn process_of(&self, id: JobId) -> Option<u32> {
        let job = self.jobs.get(id)?;
        let known = |tenant| self.known.get(tenant).map(|known| known.link.who.pid);
        let arriving = |tenant| self.arriving.get(tenant).map(Arriving::pid);
        let member = |tenant| known(tenant).or_else(|| arriving(tenant));
        job.roots.first().map(|root| root.pid).or_else(|| job.members.iter().find_map(member))
    }

    /// A job that this one may change: its own, or any for root.
    pub(super) fn own_job(&self, peer: Peer, name: &str) -> Result<JobId, Refusal> {
        let id = self.find_job(peer, name)?;
        match self.jobs.get(id) {
            Some(job) if [0, job.uid].contains(&peer.uid) => Ok(id),
            Some(job) => Err(Refusal {
                reason: format!("job {} belongs to user {}", job.name, job.uid),
                hint: Some("only its user and root may change it".into()),
            }),
            None => Err(self.unknown(name)),
        }
    }

    /// The job that is meant: by its name, which is first of all one's own, or by a process in it.
    pub(super) fn find_job(&self, peer: Peer, name: &str) -> Result<JobId, Refusal> {
        if let Some(own) = self.jobs.named(peer.uid, name) {
            return Ok(own);
        }
        let mut named = self.jobs.with_names().filter(|(_, job)| job.name == name);
        match (named.next(), named.next()) {
            (Some((id, _)), None) => return Ok(id),
            (Some((_, one)), Some((_, other))) => {
                let reason = format!(
                    "several jobs are called {name}, of user {}, user {} and perhaps more",
                    one.uid, other.uid
                );
                return Err(Refusal::new(reason, "name one of its processes instead; `rota ps` shows them"));
            }
            (None, _) => {}
        }
        let pid = name.parse::<u32>().ok();
        let of_process = pid.and_then(|pid| {
            let member = self.tenant_of(pid).and_then(|tenant| self.jobs.of(tenant));
            member.or_else(|| self.jobs.begun_by(pid))
        });
        of_process.ok_or_else(|| self.unknown(name))
    }

    pub(super) fn unknown(&self, name: &str) -> Refusal {
        let mut names: Vec<&str> = self.jobs.with_names().map(|(_, job)| job.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let hint = match names.len() {
            0 => "there are no jobs now; `rota run -- CMD` starts one".to_owned(),
            count if count <= NAMED_MAX => format!("the jobs there are: {}", names.join(", ")),
            count => format!(
                "the jobs there are: {} and {} more",
                names[..NAMED_MAX].join(", "),
                count - NAMED_MAX
            ),
        };
        Refusal::new(format!("nothing here is called `{name}`: no job, no process, no GPU"), hint)
    }
}
