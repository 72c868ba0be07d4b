//! Requests of a latency-critical program that does not say itself when they begin and end, as the shim sees them: from the
//! first work after a pause until somebody has waited for all of it, and the next pause begins.
//!
//! A program may wait several times within a request, and go on at once, or prepare its kernels for a while once its input is
//! on the device. So a request has ended for certain only when a pause
//! has lasted: it is counted when the next one begins. Where the last requests had all the same number of waits, the end is
//! known at once, and told to a daemon that keeps others off the GPU until then; otherwise the daemon finds out by looking.
//!
//! Nothing here is on the way of a launch: it is called when work begins after a rest, and when the last of it is done.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use wire::{Page, ToDaemon, monotonic_ns};

use super::sight::{self, LEAD_MAX_NS, PAUSE_MIN_NS};
use super::{present, requests};
use crate::session;

/// So many requests in a row had the same number of waits, and the next one will have it too.
const ALIKE_MIN: u64 = 4;

/// What is seen of the program's requests. Two threads that begin or end at the same time may lose what one of them saw.
#[derive(Debug)]
struct Stretches {
    /// When the request that is on, or was last, began; 0 if none was seen.
    began_ns: AtomicU64,
    /// Since when there is no work; 0 while there is some, or nobody saw it end.
    rested_ns: AtomicU64,
    /// How often work was done and waited for in this request.
    rests: AtomicU64,
    /// How much had been handed over at the last of them.
    handed_over: AtomicU64,
    /// How often in the request before, and in how many before that in a row.
    usual: AtomicU64,
    alike: AtomicU64,
}

static SEEN: Stretches = Stretches::new();
/// The program says itself when requests begin and end.
static TOLD: AtomicBool = AtomicBool::new(false);

impl Stretches {
    const fn new() -> Self {
        let [began_ns, rested_ns, rests, handed_over, usual, alike] = [const { AtomicU64::new(0) }; 6];
        Self { began_ns, rested_ns, rests, handed_over, usual, alike }
    }

    /// There is work again, perhaps the first launch behind an input of that instant. How long the last request took, if this
    /// is another one.
    fn begins(&self, now_ns: u64, input_ns: Option<u64>) -> Option<u64> {
        let rested = self.rested_ns.swap(0, SeqCst);
        let prepared = input_ns.is_some_and(|at| at <= rested && now_ns.saturating_sub(at) <= LEAD_MAX_NS);
        if rested == 0 || prepared || now_ns.saturating_sub(rested) < PAUSE_MIN_NS {
            return None;
        }
        let began = self.began_ns.swap(now_ns, SeqCst);
        let rests = self.rests.swap(0, SeqCst);
        // A call that only may have used the GPU is no request.
        if began == 0 || rests == 0 {
            return None;
        }
        let alike = if self.usual.swap(rests, Relaxed) == rests { self.alike.load(Relaxed) + 1 } else { 1 };
        self.alike.store(alike, Relaxed);
        Some(rested.saturating_sub(began))
    }

    /// All work is done, of which so much was ever handed over. True if that is the end of the request, as far as can be told.
    fn rests(&self, now_ns: u64, handed_over: u64) -> bool {
        let worked = self.handed_over.swap(handed_over, SeqCst) != handed_over;
        self.rested_ns.store(now_ns.max(1), SeqCst);
        if !worked || self.began_ns.load(SeqCst) == 0 {
            return false;
        }
        let rests = self.rests.fetch_add(1, SeqCst) + 1;
        self.alike.load(Relaxed) >= ALIKE_MIN && rests == self.usual.load(Relaxed)
    }

    fn forget(&self) {
        let words =
            [&self.began_ns, &self.rested_ns, &self.rests, &self.handed_over, &self.usual, &self.alike];
        words.into_iter().for_each(|word| word.store(0, SeqCst));
    }
}

/// The program says itself when requests begin and end, from now on.
pub(super) fn leave_them_to_the_program() {
    if !TOLD.swap(true, SeqCst) {
        publish();
    }
}

/// Says in all pages who tells of requests.
pub(super) fn publish() {
    if TOLD.load(SeqCst) {
        session::all().for_each(|session| session.page.tell_requests());
    }
}

/// There is work again, after there was none.
pub(crate) fn begins(page: &Page) {
    if !page.critical() || TOLD.load(Relaxed) {
        return;
    }
    if let Some(took) = SEEN.begins(monotonic_ns(), sight::awaited_since()) {
        let slo = page.slo_ns();
        session::all().for_each(|session| session.page.add_request(took, slo));
    }
}

/// All work is done, since this instant; so much was ever handed over.
pub(crate) fn rests(page: &Page, now_ns: u64, handed_over: impl FnOnce() -> u64) {
    if !page.critical() || TOLD.load(Relaxed) {
        return;
    }
    if SEEN.rests(now_ns, handed_over()) && present().any(|session| session.page.end_is_awaited()) {
        requests::tell(&ToDaemon::Served);
    }
}

/// In a forked child: nothing was seen.
pub(super) fn forget() {
    SEEN.forget();
    TOLD.store(false, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// A program with one clock, whose work takes no longer than it is said to.
    struct Program {
        seen: Stretches,
        now: u64,
        launches: u64,
    }

    impl Program {
        fn started() -> Self {
            let program = Self { seen: Stretches::new(), now: MS, launches: 3 };
            // What it does before the first pause is seen to end, and not to begin.
            assert!(!program.seen.rests(program.now, program.launches));
            program
        }

        /// A request of so many waits, with so much work before each, and then a pause. How long the one before it took,
        /// and at which of its waits its end was told.
        fn request(&mut self, waits: u64, work: u64) -> (Option<u64>, Vec<u64>) {
            self.now += 10 * MS;
            let before = self.seen.begins(self.now, None);
            let mut told = Vec::new();
            for wait in 1..=waits {
                if wait > 1 {
                    self.now += 100 * US;
                    assert_eq!(self.seen.begins(self.now, None), None, "within a request");
                }
                self.launches += 1;
                self.now += work;
                if self.seen.rests(self.now, self.launches) {
                    told.push(wait);
                }
            }
            (before, told)
        }
    }

    #[test]
    fn a_request_lasts_from_its_first_work_to_the_pause_behind_its_last() {
        let mut program = Program::started();
        assert_eq!(program.request(1, 70 * US).0, None, "what was before is no request");
        assert_eq!(program.request(3, 50 * US).0, Some(70 * US));
        assert_eq!(program.request(1, 5 * MS).0, Some(350 * US), "with two pauses of 100 us in it");
        assert_eq!(program.request(1, US).0, Some(5 * MS));
    }

    #[test]
    fn the_end_is_told_where_requests_have_been_alike_and_not_where_they_vary() {
        let mut program = Program::started();
        for _ in 0..ALIKE_MIN {
            assert_eq!(program.request(2, 50 * US).1, [], "too few were seen");
        }
        for _ in 0..3 {
            assert_eq!(program.request(2, 50 * US).1, [2]);
        }
        assert_eq!(program.request(3, 50 * US).1, [2], "nobody could know");
        for waits in [2, 3, 2, 2, 3, 3, 2] {
            assert_eq!(program.request(waits, 50 * US).1, [], "they vary");
        }
    }

    #[test]
    fn an_input_and_the_kernels_that_it_is_prepared_for_are_one_request() {
        let mut program = Program::started();
        program.request(1, 70 * US);
        let input = program.now + 10 * MS;
        assert_eq!(program.seen.begins(input, Some(input)), Some(70 * US), "the input itself begins one");
        assert!(!program.seen.rests(input + 10 * US, 10));
        assert_eq!(program.seen.begins(input + 3 * MS, Some(input)), None);
        assert!(!program.seen.rests(input + 4 * MS, 11));
        assert_eq!(program.seen.begins(input + 20 * MS, None), Some(4 * MS));
        assert!(!program.seen.rests(input + 21 * MS, 12));
        let (late, old) = (input + 100 * MS, Some(input + 20 * MS));
        assert_eq!(program.seen.begins(late, old), Some(MS), "no launch came for too long");
    }

    #[test]
    fn calls_that_hand_nothing_over_are_no_requests() {
        let mut program = Program::started();
        program.request(1, 70 * US);
        program.now += 10 * MS;
        assert_eq!(program.seen.begins(program.now, None), Some(70 * US));
        assert!(!program.seen.rests(program.now + US, program.launches));
        program.now += 10 * MS;
        assert_eq!(program.seen.begins(program.now, None), None, "nothing was handed over in between");
    }
}
