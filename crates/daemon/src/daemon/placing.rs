//! Which GPUs a program gets: what it may ask for, where the core sends it, and who is there already.

use super::Daemon;
use super::arrivals::Arriving;
use super::commands::Peer;
use super::limits::Refusal;
use sched::{Bytes, Event, GpuId, JobId, TicketId};
use std::collections::BTreeSet;
use wire::GpuChoice;

/// What a program asks for, in the core's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    count: u16,
    /// Only these; any if empty.
    among: Vec<GpuId>,
    /// Nobody minds if the GPU has no room for it now: it waits at the door.
    patient: bool,
}

impl Daemon {
    /// What somebody asks for, for a job that may be there already, if it may have that.
    pub(super) fn wish(&self, peer: Peer, job: Option<JobId>, choice: &GpuChoice) -> Result<Wish, Refusal> {
        let shared = self.setup.gpus.len();
        let most =
            self.limits_of(peer.uid, peer.pid())?.gpus_max.map_or(shared, |most| most as usize).min(shared);
        let has: BTreeSet<GpuId> =
            job.and_then(|job| self.jobs.get(job)).map(|job| job.gpus.clone()).unwrap_or_default();
        let named = match choice {
            GpuChoice::Named(names) => self.all_named(names)?,
            _ => Vec::new(),
        };
        let count = match choice {
            GpuChoice::Usual => 1,
            GpuChoice::Count(count) => usize::from(*count),
            GpuChoice::All => most,
            GpuChoice::Named(_) => named.len(),
        };
        if count == 0 {
            return Err(Refusal::new("no GPU was asked for", "ask for 1 or more, or leave out --gpus"));
        }
        if count > shared {
            let are = if shared == 1 { "is" } else { "are" };
            let reason = format!("{count} GPUs were asked for, and {shared} {are} shared here");
            return Err(Refusal::new(reason, "`rota status` shows them"));
        }
        let all: BTreeSet<GpuId> = has.iter().chain(&named).copied().collect();
        if count > most || all.len() > most {
            let asked = all.len().max(count);
            let reason = format!("{asked} GPUs were asked for, and a job of this user may have {most}");
            return Err(Refusal::new(
                reason,
                "ask whoever runs the daemon, or see `rota config show --origin`",
            ));
        }
        // A job that has as many as it may have stays on those.
        let among =
            if named.is_empty() && has.len() + count > most { has.into_iter().collect() } else { named };
        Ok(Wish { count: count as u16, among, patient: count == 1 || matches!(choice, GpuChoice::Named(_)) })
    }

    fn all_named(&self, names: &[String]) -> Result<Vec<GpuId>, Refusal> {
        let mut found = Vec::new();
        for name in names {
            let by_index = self.gpus().find(|(gpu, _)| *name == gpu.0.to_string()).map(|(gpu, _)| gpu);
            let Some(gpu) = by_index.or_else(|| self.named_gpu(name)) else {
                let shared: Vec<String> =
                    self.gpus().map(|(number, gpu)| format!("{}: {}", number.0, gpu.uuid)).collect();
                return Err(Refusal::new(
                    match name.bytes().all(|byte| byte.is_ascii_digit()) {
                        true => format!("no GPU here has the index `{name}`"),
                        false => format!("`{name}` begins the UUID of no GPU here, or of several"),
                    },
                    format!("the GPUs that are shared: {}", shared.join(", ")),
                ));
            };
            if found.contains(&gpu) {
                return Err(Refusal { reason: format!("GPU {gpu} was named twice"), hint: None });
            }
            found.push(gpu);
        }
        Ok(found)
    }

    /// The GPUs for a program of a job. Where one cannot take it now it waits at the door there.
    pub(super) fn place(&mut self, job: JobId, wish: &Wish) -> Result<Vec<GpuId>, Refusal> {
        let memory = self.jobs.get(job).and_then(|job| job.terms.memory_max_bytes).unwrap_or(0);
        self.placed = None;
        let (ticket, bytes) = (TicketId(0), Bytes(memory));
        let (count, among) = (wish.count, wish.among.clone());
        let residue = self.setup.gpus.iter().map(|gpu| Bytes(gpu.residue_bytes)).max();
        self.step(Event::Place { ticket, job, count, among, bytes, residue });
        let (mut gpus, why) = self.placed.take().unwrap_or_default();
        if gpus.is_empty() {
            if !wish.patient {
                return Err(Refusal::new(why, "ask for fewer GPUs, or for less memory on each"));
            }
            gpus = match wish.count {
                1 => vec![self.least_sought(&wish.among)],
                _ => wish.among.clone(),
            };
        }
        if wish.among.len() == gpus.len() {
            // In the order in which they were named: the first is the one that programs use unless they choose.
            gpus = wish.among.clone();
        }
        if let Some(job) = self.jobs.get_mut(job) {
            job.placed = Some(why);
            job.gpus.extend(&gpus);
        }
        Ok(gpus)
    }

    /// May a program of this job be on a GPU, beside those that the job has?
    pub(super) fn may_be_on(&self, peer: Peer, job: JobId, gpu: GpuId) -> Result<(), Refusal> {
        let Some(most) = self.limits_of(peer.uid, peer.pid())?.gpus_max else { return Ok(()) };
        // Not where it was sent: a program may have been told to go elsewhere.
        let members = self.jobs.get(job).map(|job| &job.members).into_iter().flatten();
        let others: BTreeSet<GpuId> = members.filter_map(|&tenant| self.gpu_of(tenant)).collect();
        let others = others.into_iter().filter(|&other| other != gpu).count();
        if others + 1 > most as usize {
            let reason = format!(
                "GPU {gpu} is one more than the {others} that its job has, and a job of this user may have {most}"
            );
            return Err(Refusal { reason, hint: None });
        }
        Ok(())
    }

    /// The GPU, of these if any are named, with the fewest programs on it, at its door, and on the way to it.
    fn least_sought(&self, among: &[GpuId]) -> GpuId {
        let known = self.known.values().map(|known| known.gpu);
        let arriving = self.arriving.values().map(Arriving::gpu);
        let sent = self.jobs.with_names().filter(|(_, job)| job.members.is_empty());
        let sent = sent.flat_map(|(_, job)| job.gpus.iter().copied());
        fewest(self.setup.gpus.len(), among, known.chain(arriving).chain(sent))
    }
}

/// The first of so many GPUs, of some if those are named, that the fewest of these programs are on.
fn fewest(gpus: usize, among: &[GpuId], programs: impl Iterator<Item = GpuId>) -> GpuId {
    let mut counts = vec![0_usize; gpus];
    for GpuId(number) in programs {
        counts[usize::from(number)] += 1;
    }
    let open = (0..gpus).filter_map(|number| u16::try_from(number).ok()).map(GpuId);
    let open = open.filter(|gpu| among.is_empty() || among.contains(gpu));
    open.min_by_key(|gpu| counts[usize::from(gpu.0)]).unwrap_or(GpuId(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_can_be_taken_they_spread() {
        let among = |among: &[u16], programs: &[u16]| {
            let among: Vec<GpuId> = among.iter().copied().map(GpuId).collect();
            fewest(3, &among, programs.iter().map(|&number| GpuId(number))).0
        };
        assert_eq!(among(&[], &[]), 0);
        assert_eq!(among(&[], &[0]), 1);
        assert_eq!(among(&[], &[1, 0, 1]), 2);
        assert_eq!(among(&[], &[0, 1, 2, 2, 0]), 1);
        assert_eq!(among(&[0, 2], &[0, 0, 2]), 2);
    }
}
