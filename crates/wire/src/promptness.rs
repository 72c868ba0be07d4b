//! Threads that are to run at once when it is time: those on the way from a hint to a freeze.
//!
//! A thread that sleeps until an instant is woken up to 50 us later, so that the system can wake several at once; and where
//! every processor has a program that never sleeps, it may wait for the end of that one's slice, which takes milliseconds.
//! Neither is needed by threads that work for microseconds at a time. Linux lets a thread ask for a short slice, without any
//! rights, and prefers it to those with longer ones when it wakes; before 6.12 it does not listen. With the right to, such a
//! thread is also nicer to itself than to others.

use std::num::NonZeroU64;

/// The shortest there is.
const SLICE_NS: u64 = 100_000;
const NICE: i32 = -10;
const SLACK_NS: NonZeroU64 = NonZeroU64::MIN;
/// Threads and processes that it starts are as others are.
const RESET_ON_FORK: u64 = 1;

/// As the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of a thread that has no fixed priority.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// The same in a process of somebody else's. A filter of system calls may end whoever makes one that it does not know, and cannot
/// be asked before: so where there is any, the thread stays as it is. It is woken a little later then, and the program lives.
pub fn be_prompt_as_guest() {
    if !is_filtered() {
        be_prompt();
    }
}

/// Is the calling thread under a filter of system calls, or can that not be told?
fn is_filtered() -> bool {
    says_filtered(&std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

fn says_filtered(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_none_or(|mode| mode.trim() != "0")
}

/// With fewer processors, whoever stays awake is in others' way.
const PROCESSORS_MIN: usize = 4;

/// Are there processors enough for a thread to stay awake for moments?
pub fn may_stay_awake() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() >= PROCESSORS_MIN)
}

/// The same in a process of somebody else's; see [`be_prompt_as_guest`].
pub fn may_stay_awake_as_guest() -> bool {
    !is_filtered() && may_stay_awake()
}

/// What the calling thread has from now on. Where the system does not want it so, it stays as it is.
pub fn be_prompt() {
    let _ = rustix::thread::set_current_timer_slack(Some(SLACK_NS));
    let Some(now) = attributes() else { return };
    // Whoever has given it a priority of its own knows better.
    if now.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    let prompt = Attributes { size: SIZE, flags: RESET_ON_FORK, runtime_ns: SLICE_NS, ..now };
    if !set(&Attributes { nice: now.nice.min(NICE), ..prompt }) {
        set(&prompt);
    }
}

fn attributes() -> Option<Attributes> {
    let mut found = Attributes::default();
    // SAFETY: the kernel writes as much as it is told there is room for.
    let asked = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, SIZE, 0) };
    (asked == 0).then_some(found)
}

fn set(attributes: &Attributes) -> bool {
    // SAFETY: the kernel reads as much as the first word says there is.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, since it stays as it is made.
    fn aside<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    /// What a thread has that asks for this, if the system grants it.
    fn granted(nice: i32) -> Option<Attributes> {
        aside(|| {
            let now = attributes()?;
            let asked = Attributes { size: SIZE, flags: RESET_ON_FORK, nice, runtime_ns: SLICE_NS, ..now };
            set(&asked).then(attributes)?
        })
    }

    #[test]
    fn a_prompt_thread_has_all_that_the_system_grants_and_is_an_ordinary_one_all_the_same() {
        let Some(before) = aside(attributes) else { return };
        let (slack, after, other) = aside(|| {
            be_prompt();
            (
                rustix::thread::current_timer_slack().unwrap(),
                attributes().unwrap(),
                aside(attributes).unwrap(),
            )
        });
        assert_eq!(slack, SLACK_NS.get());
        assert_eq!((after.policy, after.priority), (before.policy, before.priority));
        if before.policy != libc::SCHED_OTHER as u32 {
            return assert_eq!(after, before, "whoever gave it a priority knows better");
        }
        // Without the right to a higher priority, at least the slice.
        let most = granted(before.nice.min(NICE)).or_else(|| granted(before.nice));
        assert_eq!(Some(after), most);
        let at_start = Attributes { nice: after.nice.max(0), ..before };
        assert_eq!(other, at_start, "what it starts is as others are");
    }

    #[test]
    fn a_filter_is_known_by_the_systems_word() {
        assert!(!says_filtered("Name:\tone\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(says_filtered("Name:\tone\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(says_filtered("Seccomp:\t1\n"));
        assert!(says_filtered("Name:\tone\nSeccomp_filters:\t0\n"), "nobody says");
        assert!(says_filtered(""));
    }

    /// Puts the calling thread under a filter that lets everything pass. False where the system has none.
    fn filter_this_thread() -> bool {
        let pass = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        };
        let mut filter = [pass];
        let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
        // SAFETY: both concern this thread only; the second reads the filter, which is there until it returns.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    }

    #[test]
    fn nothing_is_asked_for_in_a_process_whose_system_calls_are_filtered() {
        let is_prompt = || {
            be_prompt_as_guest();
            rustix::thread::current_timer_slack().unwrap() == SLACK_NS.get()
        };
        // The tests themselves may be under a filter.
        assert_eq!(aside(is_prompt), !is_filtered());
        let is_prompt_under_filter = || filter_this_thread().then(is_prompt);
        assert_ne!(aside(is_prompt_under_filter), Some(true));
    }
}
