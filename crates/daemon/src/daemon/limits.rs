//! May a job have these terms? What was asked for and is not allowed is refused, with the reason; what was not asked for is
//! as much as is allowed.

use super::programs::Allowed;
use super::{Daemon, Freezes};
use crate::config::rules::{Limits, Said};
use crate::conversation::Credentials;
use sched::{Bytes, JobId, Ratio, Span, UserId, WhenFull};
use wire::quantity::{self, Share};
use wire::{Answer, Change, Class, OVERSIZE_ALL, Priority, Terms};

/// The highest weight: a thousandth of a GPU's time is as little as turns can give.
const WEIGHT_MAX: u32 = 1000;

/// The terms of a job of which nothing is said.
pub(super) const USUAL: Terms = Terms {
    weight: 1,
    class: Class::BestEffort,
    priority: Priority::Normal,
    memory_max_bytes: None,
    cores_max_millionths: None,
    slo_ns: None,
    wait: false,
    gang: false,
    oversize_bytes: 0,
    reserve: false,
};

/// Why terms are refused, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) hint: Option<String>,
}

impl Refusal {
    pub(super) fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: Some(hint.into()) }
    }

    pub(super) fn answer(self) -> Answer {
        Answer::Refused { reason: self.reason, hint: self.hint }
    }
}

impl Daemon {
    /// What this process may ask for, whatever program it will be.
    pub(super) fn limits_of(&self, uid: u32, pid: u32) -> Result<Limits, Refusal> {
        Ok(self.said_of(uid, pid)?.limits())
    }

    /// What is said of whoever has this process.
    pub(super) fn said_of(&self, uid: u32, pid: u32) -> Result<Said, Refusal> {
        let rules = &self.setup.about.rules;
        let groups = if rules.needs_groups_of(uid) { groups_of(pid, uid)? } else { Vec::new() };
        // Whoever runs the daemon could have all of it anyway.
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&uid);
        let highest = if trusted { Priority::Realtime } else { Priority::High };
        let usual = Limits {
            lc: Some(trusted),
            reserve: Some(trusted),
            priority_max: Some(highest),
            ..Limits::default()
        };
        Ok(rules.said_of(uid, &groups, usual, self.capacity_bytes()))
    }

    /// What a share of a GPU's memory is a share of: the largest one.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.setup.gpus.iter().map(|gpu| gpu.capacity_bytes).max().unwrap_or(0)
    }

    pub(super) fn room(&self) -> Room {
        let oversize_bytes = self.setup.rules.settings.host_max.0;
        Room { capacity_bytes: self.capacity_bytes(), oversize_bytes }
    }

    /// The terms of a job of which nothing is said.
    pub(super) fn usual_terms(&self, uid: u32, pid: u32) -> Result<Terms, Refusal> {
        let allowed = self.allowed_before(&self.said_of(uid, pid)?);
        within(&allowed, &USUAL, &Change::default(), self.room())
    }

    /// The terms of a job, which may be there already, with these changes, if it may have them.
    pub(super) fn terms_with(
        &self,
        uid: u32,
        pid: u32,
        job: Option<JobId>,
        change: &Change,
    ) -> Result<Terms, Refusal> {
        let job = job.and_then(|job| self.jobs.get(job));
        let allowed = self.allowed_to(&self.said_of(uid, pid)?, job);
        let terms = within(&allowed, job.map_or(&USUAL, |job| &job.terms), change, self.room())?;
        if terms.class == Class::LatencyCritical
            && self.setup.gpus.iter().any(|gpu| gpu.freezes == Freezes::Launches)
        {
            return Err(Refusal::new(
                "the class lc was asked for, and here programs cannot be interrupted in the middle of a kernel",
                "`rota status` says how they are stopped, `rota doctor` why",
            ));
        }
        let context = self.setup.gpus.iter().map(|gpu| gpu.residue_bytes).max().unwrap_or(0);
        match terms.memory_max_bytes.filter(|&most| change.memory.is_some() && most <= context) {
            Some(most) => Err(Refusal::new(
                format!(
                    "{} of memory were asked for, and a program's context alone takes {}",
                    quantity::Bytes(most),
                    quantity::Bytes(context)
                ),
                "ask for that, and for what the program itself needs",
            )),
            None => Ok(terms),
        }
    }
}

/// What there is of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// On the largest GPU: what a share of its memory is a share of.
    capacity_bytes: u64,
    /// In the host's memory, for what GPUs cannot have.
    oversize_bytes: u64,
}

/// The terms with these changes, if they are allowed.
pub(super) fn within(
    allowed: &Allowed,
    before: &Terms,
    change: &Change,
    room: Room,
) -> Result<Terms, Refusal> {
    let Allowed { limits, whom } = allowed;
    let Room { capacity_bytes, oversize_bytes } = room;
    let mut terms = change.applied_to(before, capacity_bytes);
    let hint = "ask whoever runs the daemon, or see `rota config show --origin`";
    if terms.weight == 0 || terms.weight > WEIGHT_MAX {
        let reason = format!("a weight of {} was asked for; weights are 1 to {WEIGHT_MAX}", terms.weight);
        return Err(Refusal { reason, hint: None });
    }
    if let Some(most) = limits.weight_max.filter(|&most| terms.weight > most) {
        let reason = format!("a weight of {} was asked for, and {whom} may have {most}", terms.weight);
        return Err(Refusal::new(reason, hint));
    }
    if terms.class == Class::LatencyCritical && limits.lc == Some(false) {
        let reason = format!("the class lc was asked for, and {whom} may have best-effort jobs only");
        return Err(Refusal::new(reason, hint));
    }
    if terms.reserve && limits.reserve == Some(false) {
        let reason = format!("memory that stays on the GPU was asked for, and {whom} may have none");
        return Err(Refusal::new(reason, hint));
    }
    // The first is the highest.
    if let Some(most) = limits.priority_max.filter(|&most| terms.priority < most) {
        if change.priority.is_some() {
            let reason = format!("the priority {} was asked for, and {whom} may have {most}", terms.priority);
            return Err(Refusal::new(reason, hint));
        }
        terms.priority = most;
    }
    if terms.class == Class::BestEffort {
        if change.slo_ns.is_some() {
            let reason =
                "an SLO was asked for, which latency-critical programs have and best-effort ones do not";
            return Err(Refusal::new(reason, "ask for the class lc with it: --class lc"));
        }
        terms.slo_ns = None;
    }
    if let Some(most) = limits.memory_max.map(|memory| memory.on(capacity_bytes)) {
        let wanted = terms.memory_max_bytes.unwrap_or(capacity_bytes);
        if change.memory.is_some() && wanted > most {
            let (wanted, most) = (quantity::Bytes(wanted), quantity::Bytes(most));
            let reason = format!("{wanted} of memory were asked for, and {whom} may have {most}");
            return Err(Refusal::new(reason, hint));
        }
        terms.memory_max_bytes = Some(wanted.min(most)).filter(|&bytes| bytes < capacity_bytes);
    }
    if let Some(most) = limits.cores_max.map(Share::millionths) {
        let wanted = terms.cores_max_millionths.unwrap_or(Share::ALL.millionths());
        if change.cores_millionths.is_some() && wanted > most {
            let [wanted, most] = [wanted, most].map(Share::of_millionths);
            let reason = format!("{wanted} of the GPU's time was asked for, and {whom} may have {most}");
            return Err(Refusal::new(reason, hint));
        }
        terms.cores_max_millionths = Some(wanted.min(most)).filter(|&share| share < Share::ALL.millionths());
    }
    if terms.oversize_bytes > oversize_bytes {
        let asks = change.oversize_bytes.filter(|&asked| asked != OVERSIZE_ALL || oversize_bytes == 0);
        let hint = "oversize_max is what there is for all, see `rota config show --origin`";
        match asks {
            Some(OVERSIZE_ALL) => {
                let reason = "host memory beyond the GPU was asked for, and this daemon has none to give";
                return Err(Refusal::new(reason, hint));
            }
            Some(asked) => {
                let [asked, most] = [asked, oversize_bytes].map(quantity::Bytes);
                let reason = format!("{asked} beyond the GPU were asked for, and there are {most} in all");
                return Err(Refusal::new(reason, hint));
            }
            // As much as there is; or what it had, of a daemon that had more.
            None => terms.oversize_bytes = oversize_bytes,
        }
    }
    Ok(terms)
}

/// Terms as the core has them, for a job whose processes only get on together for a reason of their own, or not.
pub(super) fn in_core(uid: u32, terms: &Terms, several: bool) -> sched::Terms {
    sched::Terms {
        user: UserId(uid),
        weight: terms.weight,
        class: match terms.class {
            Class::LatencyCritical => sched::Class::LatencyCritical,
            Class::BestEffort => sched::Class::BestEffort,
        },
        priority: match terms.priority {
            Priority::Realtime => sched::Priority::Realtime,
            Priority::High => sched::Priority::High,
            Priority::Normal => sched::Priority::Normal,
            Priority::Low => sched::Priority::Low,
            Priority::Idle => sched::Priority::Idle,
        },
        slo: terms.slo_ns.map(Span),
        memory_max: terms.memory_max_bytes.map(Bytes),
        compute_max: terms.cores_max_millionths.map(Ratio),
        when_full: if terms.wait { WhenFull::Wait } else { WhenFull::Fail },
        gang: terms.gang || several,
        host_max: Bytes(terms.oversize_bytes),
        reserve: terms.reserve,
    }
}

/// The groups of a process of this user, by the kernel's word. Whoever has the number by now may be another, but of this user
/// it has to be: with that one's groups the user could have asked. Somebody whose groups cannot be told is not let past their
/// rules.
fn groups_of(pid: u32, uid: u32) -> Result<Vec<u32>, Refusal> {
    let path = format!("/proc/{pid}/status");
    let cannot = |cause: &dyn std::fmt::Display| {
        let reason =
            format!("there are rules for groups, and those of process {pid} cannot be told: {path}: {cause}");
        Refusal::new(reason, "let the daemon see all of /proc, or give the user a [[user]] rule of its own")
    };
    let status = std::fs::read_to_string(&path).map_err(|cause| cannot(&cause))?;
    let its = Credentials::in_status(&status).filter(|its| its.is_of(uid));
    let its = its.ok_or_else(|| cannot(&format_args!("it is no process of user {uid}")))?;
    Ok([its.groups, its.further_groups].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::quantity::Memory;

    const CAPACITY: Room = Room { capacity_bytes: 16 << 30, oversize_bytes: 8 << 30 };

    fn limits() -> Allowed {
        Allowed::of(Limits {
            memory_max: Some(Memory::Millionths(500_000)),
            cores_max: Some(Share::of_millionths(300_000)),
            weight_max: Some(2),
            lc: Some(false),
            gpus_max: None,
            reserve: Some(false),
            priority_max: Some(Priority::Low),
        })
    }

    fn free() -> Allowed {
        Allowed::of(Limits::default())
    }

    fn asked(change: Change) -> Result<Terms, Refusal> {
        within(&limits(), &USUAL, &change, CAPACITY)
    }

    #[test]
    fn who_asks_for_nothing_gets_as_much_as_is_allowed() {
        let terms = asked(Change::default()).unwrap();
        assert_eq!((terms.memory_max_bytes, terms.cores_max_millionths), (Some(8 << 30), Some(300_000)));
        assert_eq!(terms.priority, Priority::Low);
        assert_eq!(within(&free(), &USUAL, &Change::default(), CAPACITY), Ok(USUAL));
    }

    #[test]
    fn less_than_the_limit_is_had_and_more_is_refused_with_both_values() {
        let small = Change { memory: Some(Memory::Bytes(1 << 30)), weight: Some(2), ..Change::default() };
        assert_eq!(asked(small).unwrap().memory_max_bytes, Some(1 << 30));
        let large = Change { memory: Some(Memory::Bytes(12 << 30)), ..Change::default() };
        let refusal = asked(large).unwrap_err();
        assert_eq!(refusal.reason, "12.0 GiB of memory were asked for, and this user may have 8.0 GiB");
        assert!(refusal.hint.is_some());
        let all = Change { cores_millionths: Some(1_000_000), ..Change::default() };
        assert!(asked(all).unwrap_err().reason.starts_with("100% of the GPU's time was asked for"));
        let heavy = Change { weight: Some(3), ..Change::default() };
        assert!(asked(heavy).unwrap_err().reason.contains("may have 2"));
        let critical = Change { class: Some(Class::LatencyCritical), ..Change::default() };
        assert!(asked(critical).unwrap_err().reason.contains("best-effort jobs only"));
        let kept = Change { reserve: Some(true), ..Change::default() };
        assert!(asked(kept).unwrap_err().reason.contains("stays on the GPU"));
        let high = Change { priority: Some(Priority::Normal), ..Change::default() };
        assert_eq!(
            asked(high).unwrap_err().reason,
            "the priority normal was asked for, and this user may have low"
        );
        let idle = Change { priority: Some(Priority::Idle), ..Change::default() };
        assert_eq!(asked(idle).unwrap().priority, Priority::Idle);
    }

    #[test]
    fn an_slo_is_for_the_latency_critical() {
        let free = |before: &Terms, change: Change| within(&free(), before, &change, CAPACITY);
        let slo = Change { slo_ns: Some(1), ..Change::default() };
        assert!(free(&USUAL, slo.clone()).unwrap_err().hint.unwrap().contains("--class lc"));
        let both = Change { class: Some(Class::LatencyCritical), ..slo };
        let critical = free(&USUAL, both).unwrap();
        assert_eq!(critical.slo_ns, Some(1));
        let back = Change { class: Some(Class::BestEffort), ..Change::default() };
        assert_eq!(free(&critical, back), Ok(USUAL), "it goes with the class");
    }

    #[test]
    fn what_is_beyond_the_gpu_is_within_what_the_daemon_has() {
        let free = |before: &Terms, asked, oversize_bytes| {
            let change = Change { oversize_bytes: asked, ..Change::default() };
            within(&free(), before, &change, Room { oversize_bytes, ..CAPACITY })
        };
        let bytes = |terms: Result<Terms, Refusal>| terms.unwrap().oversize_bytes;
        assert_eq!(bytes(free(&USUAL, None, 8 << 30)), 0);
        assert_eq!(bytes(free(&USUAL, Some(4 << 30), 8 << 30)), 4 << 30);
        assert_eq!(bytes(free(&USUAL, Some(OVERSIZE_ALL), 8 << 30)), 8 << 30);
        let much = free(&USUAL, Some(9 << 30), 8 << 30).unwrap_err();
        assert_eq!(much.reason, "9.0 GiB beyond the GPU were asked for, and there are 8.0 GiB in all");
        assert!(free(&USUAL, Some(OVERSIZE_ALL), 0).unwrap_err().reason.contains("none to give"));
        let had = Terms { oversize_bytes: 8 << 30, ..USUAL };
        assert_eq!(bytes(free(&had, None, 2 << 30)), 2 << 30, "the daemon has less now");
        assert_eq!(bytes(free(&had, Some(0), 8 << 30)), 0);
    }

    #[test]
    fn weights_that_mean_nothing_are_refused() {
        for weight in [0, WEIGHT_MAX + 1] {
            let change = Change { weight: Some(weight), ..Change::default() };
            assert!(within(&free(), &USUAL, &change, CAPACITY).is_err());
        }
    }

    #[test]
    fn this_process_has_the_groups_that_the_system_says() {
        let mut mine: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        mine.push(rustix::process::getegid().as_raw());
        let found = groups_of(std::process::id(), rustix::process::getuid().as_raw()).unwrap();
        assert!(mine.iter().all(|group| found.contains(group)), "{mine:?} {found:?}");
    }

    #[test]
    fn a_process_whose_groups_cannot_be_told_is_refused() {
        // No process has this number.
        let refusal = groups_of(u32::MAX, 0).unwrap_err();
        assert!(refusal.reason.contains("/proc/4294967295/status"), "{refusal:?}");
        let another = rustix::process::getuid().as_raw() + 1;
        let refusal = groups_of(std::process::id(), another).unwrap_err();
        assert!(refusal.reason.contains(&format!("no process of user {another}")), "{refusal:?}");
    }
}
