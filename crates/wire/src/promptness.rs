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
    let said = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mode = said.lines().find_map(|line| line.strip_prefix("Seccomp:"));
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

    #[test]
    fn a_prompt_thread_is_woken_in_time_and_is_an_ordinary_one_all_the_same() {
        let [before, after, other] = std::thread::scope(|scope| {
            let prompt = scope.spawn(|| {
                let before = attributes();
                be_prompt();
                assert_eq!(rustix::thread::current_timer_slack().unwrap(), SLACK_NS.get());
                let other = std::thread::scope(|scope| scope.spawn(attributes).join().unwrap());
                [before, attributes(), other]
            });
            prompt.join().unwrap()
        });
        let (Some(before), Some(after), Some(other)) = (before, after, other) else { return };
        assert_eq!((after.policy, after.priority), (before.policy, before.priority));
        assert!(after.nice <= before.nice);
        assert!(other.nice >= 0, "what it starts is as others are: {other:?}");
        assert_eq!(other.runtime_ns, before.runtime_ns);
        // Kernels that know nothing of slices name none.
        assert!(
            [0, SLICE_NS].contains(&after.runtime_ns) || after.runtime_ns == before.runtime_ns,
            "{after:?}"
        );
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
        let slack_after = |filter: bool| {
            let thread = std::thread::spawn(move || {
                if filter && !filter_this_thread() {
                    return None;
                }
                be_prompt_as_guest();
                rustix::thread::current_timer_slack().ok()
            });
            thread.join().unwrap()
        };
        if is_filtered() {
            return;
        }
        assert_eq!(slack_after(false), Some(SLACK_NS.get()));
        assert_ne!(slack_after(true), Some(SLACK_NS.get()));
    }
}
