//! When, in the middle of a freeze, the warm-up of whoever hinted is launched.
//!
//! The call that freezes returns some time after the GPU has put off what ran: until then the service's context could be loaded
//! already. Launched when the call has returned, it is loaded 90 us later; 200 us before that, it is when the call returns. Launched
//! long before, it is loaded beside what still runs, which then takes the GPU once more, and is of no use. So it goes some time
//! before a freeze is over, by how long freezes took of late, and once more if this one took much longer
//! (`gpu/probes/early.cu`).

use std::time::Duration;

/// So long before a freeze is over, by how long they usually take.
const BEFORE: Duration = Duration::from_micros(200);

/// A warm-up that was launched longer before the end may have been of no use.
const LONG_BEFORE: Duration = Duration::from_micros(320);

/// Whoever launches waits for no instant further away.
const WAITED_FOR_MAX: Duration = Duration::from_nanos(wire::WARM_UP_WAITED_FOR_NS);

/// How much one freeze counts.
const PER: u32 = 8;

/// What takes longer than so many times what is usual had to wait for something else.
const TIMES_MAX: u32 = 2;

/// How long freezes of a GPU take.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    usual: Option<Duration>,
}

impl Ahead {
    /// How long after the begin of a freeze, once any was seen, and if whoever launches waits for so long.
    pub(super) fn after(&self) -> Option<Duration> {
        let after = self.usual.map(|usual| usual.saturating_sub(BEFORE).max(usual / 2));
        after.filter(|after| *after < WAITED_FOR_MAX)
    }

    /// It was launched so long after the begin of a freeze that took so long: is it to be launched again?
    pub(super) fn is_lost(after: Duration, took: Duration) -> bool {
        took.saturating_sub(after) > LONG_BEFORE
    }

    /// A freeze took so long.
    pub(super) fn learn(&mut self, took: Duration) {
        self.usual = Some(match self.usual {
            None => took,
            Some(usual) if took >= usual => usual + (took.min(usual * TIMES_MAX) - usual) / PER,
            Some(usual) => usual - (usual - took) / PER,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn after(took: impl IntoIterator<Item = u64>) -> Option<u128> {
        let mut ahead = Ahead::default();
        took.into_iter().for_each(|took| ahead.learn(us(took)));
        ahead.after().map(|after| after.as_micros())
    }

    #[test]
    fn it_goes_some_time_before_a_freeze_is_over() {
        assert_eq!(after([]), None, "nobody knows when that is");
        assert_eq!(after([500; 3]), Some(300));
        assert_eq!(after([1_200]), Some(1_000));
        assert_eq!(after([300]), Some(150), "but not before half of it is over");
        assert_eq!(after([1_690]), Some(1_490));
        assert_eq!(after([1_700; 3]), None, "nobody waits so long: it goes when the freeze is over");
        assert!((295..305).contains(&after((0..100).map(|n| 470 + n * 37 % 60)).unwrap()));
    }

    #[test]
    fn a_freeze_that_was_held_up_changes_little() {
        let with = after([500; 20].into_iter().chain([40_000])).unwrap();
        assert!((340..370).contains(&with), "{with}");
        let later = after([500; 20].into_iter().chain([40_000]).chain([500; 20])).unwrap();
        assert!((300..310).contains(&later), "{later}");
    }

    #[test]
    fn it_goes_again_where_the_freeze_took_much_longer_than_usual() {
        assert!(!Ahead::is_lost(us(300), us(500)));
        assert!(!Ahead::is_lost(us(300), us(620)));
        assert!(Ahead::is_lost(us(300), us(621)));
        assert!(!Ahead::is_lost(us(300), us(250)), "it was sooner");
    }
}
