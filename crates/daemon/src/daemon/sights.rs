//! What NVML tells of the GPUs becomes what the books say: what contexts really take, what programs outside of rota hold, and
//! what is in use that no process is said to have. That is what the driver takes beside contexts and for pinned memory, what
//! somebody holds by a file alone, and all of those whom NVML does not show.
//!
//! Everything moves while NVML looks, so a figure counts only where the books were the same before and after it; and it has
//! to be seen again before anything follows from it. What grew is believed sooner than what shrank: room that is promised
//! too late costs little.

use super::Daemon;
use crate::machine::{Booked, Books, Process, Sight};
use sched::{Bytes, Event, GpuId, State, TenantId};
use serde_json::json;
use std::collections::BTreeMap;
use wire::Unmanaged;

/// Looks after which something smaller is believed.
const SMALLER_AFTER: usize = 3;
/// Looks after which something larger is believed.
const LARGER_AFTER: usize = 2;
/// Strangers in one listing, so that it fits into a message.
const LISTED_MAX: usize = 16;

/// What the last looks said of one figure: at least so much, at most so much. The last is the newest.
#[derive(Debug, Default)]
pub(super) struct Recent(Vec<(Bytes, Bytes)>);

impl Recent {
    fn add(&mut self, least: Bytes, most: Bytes) {
        if self.0.len() == SMALLER_AFTER {
            self.0.remove(0);
        }
        self.0.push((least, most));
    }

    /// What to believe instead of `believed`, if anything else.
    fn instead_of(&self, believed: Bytes) -> Option<Bytes> {
        let last = |count: usize| self.0.len().checked_sub(count).map(|from| &self.0[from..]);
        let least = last(LARGER_AFTER).and_then(|seen| seen.iter().map(|(least, _)| *least).min());
        let most = last(SMALLER_AFTER).and_then(|seen| seen.iter().map(|(_, most)| *most).max());
        least.filter(|&least| least > believed).or(most.filter(|&most| most < believed))
    }
}

/// A process that is no tenant.
#[derive(Debug)]
struct Stranger {
    process: Process,
    looks: usize,
}

/// What is on the GPUs beside tenants.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    there: BTreeMap<(GpuId, u32), Stranger>,
    hidden: BTreeMap<GpuId, Hidden>,
    sums: BTreeMap<GpuId, Recent>,
}

/// What is in use of a GPU and nobody is seen to have.
#[derive(Debug, Default)]
struct Hidden {
    recent: Recent,
    believed: Bytes,
}

impl Hidden {
    /// So much of it was seen. Says whether more is believed now than before.
    fn seen(&mut self, bytes: Bytes) -> bool {
        self.recent.add(bytes, bytes);
        let before = self.believed;
        self.believed = self.recent.instead_of(before).unwrap_or(before);
        self.believed > before
    }
}

impl Strangers {
    /// Takes in who is there now. Returns those who are believed to be there for the first time.
    fn seen(&mut self, gpu: GpuId, now: Vec<Process>) -> Vec<u32> {
        let mut looks: BTreeMap<u32, usize> = BTreeMap::new();
        self.there.retain(|(on, pid), stranger| {
            if *on == gpu {
                looks.insert(*pid, stranger.looks);
            }
            *on != gpu
        });
        let mut new = Vec::new();
        for process in now {
            let looks = looks.get(&process.pid).copied().unwrap_or(0) + 1;
            if looks == LARGER_AFTER {
                new.push(process.pid);
            }
            self.there.insert((gpu, process.pid), Stranger { process, looks });
        }
        let held: Bytes = self.believed(gpu).map(|process| Bytes(process.bytes)).sum();
        self.sums.entry(gpu).or_default().add(held, held);
        new
    }

    /// What to believe that is outside of rota on a GPU, of which `spare` is theirs anyway, if it is not what is `believed`.
    fn outside(&self, gpu: GpuId, spare: Bytes, believed: Bytes) -> Option<Bytes> {
        let hidden = self.hidden.get(&gpu).map_or(Bytes::ZERO, |hidden| hidden.believed);
        let beyond =
            |&(least, most): &(Bytes, Bytes)| ((least + hidden).less(spare), (most + hidden).less(spare));
        let recent = Recent(self.sums.get(&gpu)?.0.iter().map(beyond).collect());
        // They were seen more than once before they were counted: so they are believed at once.
        let newest = recent.0.last().map_or(Bytes::ZERO, |&(least, _)| least);
        if newest > believed { Some(newest) } else { recent.instead_of(believed) }
    }

    /// Those on a GPU who were seen more than once: others may be tenants that came or went meanwhile.
    fn believed(&self, gpu: GpuId) -> impl Iterator<Item = &Process> {
        let here = self.there.range((gpu, 0)..=(gpu, u32::MAX)).map(|(_, stranger)| stranger);
        here.filter(|stranger| stranger.looks >= LARGER_AFTER).map(|stranger| &stranger.process)
    }
}

impl Daemon {
    /// What the books say of everybody whose memory lies still.
    pub(super) fn books(&self) -> Books {
        let still = |(&tenant, known): (&TenantId, &super::Known)| {
            let described = self.core.describe(tenant, self.now()).filter(|_| known.context)?;
            let unseen = Bytes(known.link.grip.page().unseen_bytes());
            let booked = Booked {
                pid: known.link.who.pid,
                gpu: known.gpu,
                resident: described.resident.less(unseen),
                granted: described.granted,
            };
            (described.state != State::Moving).then_some((tenant, booked))
        };
        let tenants: BTreeMap<TenantId, Booked> = self.known.iter().filter_map(still).collect();
        // Whoever is about to come counts on the books before it is there, and whoever goes until it is gone; but of those who
        // are to come back from an earlier worker nothing is known.
        let expects = self.gathering.expects() || !self.returning.is_empty();
        let rests = |gpu| {
            let mut there = self.known.iter().filter(|(_, known)| known.gpu == gpu && known.context);
            !expects && there.all(|(tenant, _)| tenants.contains_key(tenant))
        };
        let taken = |gpu| {
            let used = self.core.gpu(gpu).map_or(Bytes::ZERO, |view| view.used);
            (gpu, used + Bytes(self.gpu(gpu).reserve_bytes) + self.orphans(gpu))
        };
        let taken = self.gpus().map(|(gpu, _)| gpu).filter(|&gpu| rests(gpu)).map(taken).collect();
        Books { tenants, taken }
    }

    /// NVML has looked at a GPU.
    pub(super) fn sight(&mut self, sight: Sight) {
        let Sight { gpu, processes, used, books } = sight;
        let now = self.books();
        let is_still = |(tenant, booked): &(&TenantId, &Booked)| {
            booked.gpu == gpu && now.tenants.get(tenant) == Some(booked)
        };
        for (&tenant, booked) in books.tenants.iter().filter(is_still) {
            if let Some(process) = processes.iter().find(|process| process.pid == booked.pid)
                && !self.deep.is_away(tenant)
            {
                self.seen_with(tenant, booked, Bytes(process.bytes));
            }
        }
        let strangers = self.strangers_among(gpu, processes);
        if books.taken.get(&gpu) == now.taken.get(&gpu)
            && let Some(used) = used
        {
            self.look_for_hidden(gpu, used, &strangers);
        }
        self.meet_strangers(gpu, strangers);
        self.tell_everybody_of_memory();
    }

    /// A tenant holds so much of the device, and these handles of it.
    fn seen_with(&mut self, tenant: TenantId, booked: &Booked, bytes: Bytes) {
        let floor = Bytes(self.gpu(booked.gpu).residue_bytes);
        let Some(believed) = self.core.describe(tenant, self.now()).map(|described| described.residue) else {
            return;
        };
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let most = bytes.less(booked.resident);
        known.contexts.add(most.less(booked.granted).max(floor), most.max(floor));
        if let Some(bytes) = known.contexts.instead_of(believed) {
            self.step(Event::Residue { tenant, bytes });
        }
    }

    /// Those who are no tenants, nor about to be, nor were.
    fn strangers_among(&self, gpu: GpuId, mut processes: Vec<Process>) -> Vec<Process> {
        let tenants = self.known.values().map(|known| (known.gpu, known.link.who.pid));
        let arriving = self.arriving.values().map(|arriving| (arriving.gpu(), arriving.pid()));
        let dying = self.dying.values().filter_map(|dying| dying.process);
        let dying = dying.map(|(gpu, process)| (gpu, process.pid));
        let ours: Vec<(GpuId, u32)> = tenants.chain(arriving).chain(dying).collect();
        processes.retain(|process| !ours.contains(&(gpu, process.pid)));
        processes
    }

    /// So much of a GPU is in use. What contexts turned out to take is on the books by now.
    fn look_for_hidden(&mut self, gpu: GpuId, used: Bytes, strangers: &[Process]) {
        let Some(&taken) = self.books().taken.get(&gpu) else { return };
        let seen: Bytes = strangers.iter().map(|process| Bytes(process.bytes)).sum();
        let bytes = Bytes(used.less(taken + seen).0.next_multiple_of(wire::BLOCK_BYTES));
        let hidden = self.strangers.hidden.entry(gpu).or_default();
        let was_none = hidden.believed == Bytes::ZERO;
        if hidden.seen(bytes) && was_none {
            let (bytes, uuid) = (hidden.believed, &self.gpu(gpu).uuid);
            tracing::info!("{bytes} of {uuid} are in use by nobody who is seen");
        }
    }

    fn meet_strangers(&mut self, gpu: GpuId, strangers: Vec<Process>) {
        for pid in self.strangers.seen(gpu, strangers) {
            if let Some(stranger) = self.unmanaged().iter().find(|stranger| stranger.pid == pid) {
                self.say_of(stranger);
            }
        }
        let present = self.strangers.believed(gpu).next().is_some();
        if self.core.gpu(gpu).is_some_and(|view| view.strangers != present) {
            self.step(Event::Strangers { gpu, present });
        }
        // What the daemon leaves alone of the device is theirs.
        let spare = Bytes(self.gpu(gpu).spare_bytes);
        let orphans = self.orphans(gpu);
        let believed = self.core.gpu(gpu).map_or(Bytes::ZERO, |view| view.unmanaged).less(orphans);
        if let Some(bytes) = self.strangers.outside(gpu, spare, believed) {
            self.step(Event::Unmanaged { gpu, bytes: bytes + orphans });
        }
    }

    fn say_of(&self, stranger: &Unmanaged) {
        let Unmanaged { pid, gpu, bytes, program, job } = stranger;
        self.events.note(
            "unmanaged",
            json!({ "pid": pid, "gpu": gpu, "bytes": bytes, "program": program, "job": job }),
        );
        match job {
            Some(job) => tracing::warn!(
                "process {pid} ({program}) of job {job} uses {gpu} past rota: LD_PRELOAD was lost on its way (sudo, \
                 a setuid program, an environment made anew, a static executable)"
            ),
            None => tracing::info!("process {pid} ({program}) uses {gpu} without rota"),
        }
    }

    /// Processes that use the GPUs and are no tenants, those that hold most first.
    pub(super) fn unmanaged(&self) -> Vec<Unmanaged> {
        let all = self.gpus().flat_map(|(number, gpu)| {
            self.strangers.believed(number).map(|process| Unmanaged {
                pid: process.pid,
                gpu: gpu.uuid.clone(),
                bytes: process.bytes,
                program: process.program.clone(),
                job: self.job_around(process),
            })
        });
        let mut all: Vec<Unmanaged> = all.collect();
        all.sort_by_key(|stranger| std::cmp::Reverse(stranger.bytes));
        all.truncate(LISTED_MAX);
        all
    }

    /// The job that a process was started in.
    fn job_around(&self, process: &Process) -> Option<String> {
        let is_of = |pid: &u32| {
            let tenant = self.tenant_of(*pid).and_then(|tenant| self.jobs.of(tenant));
            tenant.or_else(|| self.jobs.begun_by(*pid))
        };
        let job = std::iter::once(&process.pid).chain(&process.ancestors).find_map(is_of)?;
        self.jobs.get(job).map(|job| job.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: Bytes = Bytes::from_mib(1);

    fn recent(seen: &[(u64, u64)]) -> Recent {
        let mut recent = Recent::default();
        for &(least, most) in seen {
            recent.add(Bytes(least), Bytes(most));
        }
        recent
    }

    #[test]
    fn what_is_larger_is_believed_when_it_is_seen_again() {
        assert_eq!(recent(&[(9, 9)]).instead_of(Bytes(5)), None);
        assert_eq!(recent(&[(9, 9), (7, 7)]).instead_of(Bytes(5)), Some(Bytes(7)));
        assert_eq!(recent(&[(9, 9), (5, 5)]).instead_of(Bytes(5)), None);
    }

    #[test]
    fn what_is_smaller_is_believed_later() {
        assert_eq!(recent(&[(1, 1), (2, 2)]).instead_of(Bytes(5)), None);
        assert_eq!(recent(&[(1, 1), (3, 3), (2, 2)]).instead_of(Bytes(5)), Some(Bytes(3)));
        assert_eq!(recent(&[(1, 1), (6, 6), (2, 2)]).instead_of(Bytes(5)), None);
        assert_eq!(recent(&[(6, 6), (1, 1), (2, 2), (3, 3)]).instead_of(Bytes(5)), Some(Bytes(3)));
    }

    #[test]
    fn what_may_be_either_changes_nothing() {
        assert_eq!(recent(&[(1, 9), (2, 8), (3, 7)]).instead_of(Bytes(5)), None);
    }

    #[test]
    fn what_is_hidden_counts_when_it_is_seen_again_and_until_it_is_seen_to_be_gone() {
        let (mut strangers, gpu, mut believed) = (Strangers::default(), GpuId(0), Bytes::ZERO);
        let mut look = |mib: u64| {
            let grew = strangers.hidden.entry(gpu).or_default().seen(Bytes(mib * MIB.0));
            strangers.seen(gpu, vec![]);
            believed = strangers.outside(gpu, Bytes(2 * MIB.0), believed).unwrap_or(believed);
            (grew, believed.0 / MIB.0)
        };
        let seen = [9, 9, 4, 9, 9, 12, 0, 0, 0].map(&mut look);
        assert_eq!(seen.map(|(_, outside)| outside), [0, 7, 7, 7, 7, 7, 7, 7, 0]);
        assert_eq!(seen.iter().filter(|(grew, _)| *grew).count(), 1);
    }

    #[test]
    fn strangers_count_when_they_are_seen_again_and_until_they_go() {
        let process =
            |pid, mib| Process { pid, bytes: mib * MIB.0, program: String::new(), ancestors: vec![] };
        let held =
            |strangers: &Strangers, gpu| strangers.believed(GpuId(gpu)).map(|it| it.bytes).sum::<u64>();
        let mut strangers = Strangers::default();
        assert!(strangers.seen(GpuId(0), vec![process(1, 4)]).is_empty());
        assert_eq!(held(&strangers, 0), 0);
        assert!(strangers.seen(GpuId(1), vec![process(1, 8)]).is_empty(), "another GPU, another look");
        assert_eq!(strangers.seen(GpuId(0), vec![process(1, 5), process(2, 7)]), [1]);
        assert_eq!((held(&strangers, 0), held(&strangers, 1)), (5 * MIB.0, 0));
        assert_eq!(strangers.seen(GpuId(0), vec![process(2, 7)]), [2]);
        assert_eq!(held(&strangers, 0), 7 * MIB.0);
        assert!(strangers.seen(GpuId(0), vec![]).is_empty());
        assert_eq!(held(&strangers, 0), 0);
    }
}
