//! When a warm-up is launched: by the page's word, once for each order, and as soon as that is seen.
//!
//! The daemon rings when there is an order, and earlier, when best-effort work begins to go off for a request: then whoever
//! launches stays awake until the order comes, and until the instant that it is for, so as not to be woken then, which takes twice
//! 20 to 60 us, and now and then hundreds. For a millisecond and a half at most, and as long for the instant, for no more than half
//! of the time however often that is, and only where processors are to spare. Else it hears the second ring, as all do who were not awake in time.

use std::time::Duration;
use wire::{Page, monotonic_ns};

/// How an order was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// It was there when the daemon had rung.
    Rung,
    /// It was waited for, awake.
    Awake,
}

/// Which orders were taken, and whether any is stayed awake for.
#[derive(Debug)]
pub(super) struct Watch {
    stays_awake: bool,
    /// As many as the page had counted when the last one was taken.
    taken: u64,
    /// Nobody stays awake again before this instant.
    not_before_ns: u64,
}

impl Watch {
    /// Of somebody who stays awake for orders, or never does.
    pub(super) fn new(stays_awake: bool) -> Self {
        Self { stays_awake, taken: 0, not_before_ns: 0 }
    }

    /// The daemon has rung. Takes the order that is there, or comes while it is awake for one; before that, it gets `ready`.
    pub(super) fn rung(
        &mut self,
        page: &Page,
        ready: impl FnOnce(),
        has_ended: impl Fn() -> bool,
    ) -> Option<Noticed> {
        let begin = monotonic_ns();
        if self.take(page) {
            return Some(self.put_off(page, begin, Noticed::Rung, ready, has_ended));
        }
        if !self.stays_awake || begin < self.not_before_ns || !page.warm_up_is_expected(begin) {
            return None;
        }
        ready();
        let mut now = monotonic_ns();
        while !self.take(page) {
            if has_ended() || !page.warm_up_is_expected(now) {
                // It is not expected any more once it is there.
                if self.take(page) {
                    break;
                }
                self.rest(begin, now);
                return None;
            }
            std::hint::spin_loop();
            now = monotonic_ns();
        }
        Some(self.put_off(page, begin, Noticed::Awake, || (), has_ended))
    }

    /// An order was taken: its instant is waited for, awake since `begin`, or asleep where nobody is to be awake: a launch that comes
    /// some time late is of use, one that is early is not.
    fn put_off(
        &mut self,
        page: &Page,
        begin_ns: u64,
        noticed: Noticed,
        ready: impl FnOnce(),
        has_ended: impl Fn() -> bool,
    ) -> Noticed {
        let (mut now, mut is_awake) = (monotonic_ns(), noticed == Noticed::Awake);
        if let Some(left) = page.warm_up_is_due_in(now) {
            ready();
            is_awake |= self.stays_awake && begin_ns >= self.not_before_ns;
            if !is_awake {
                std::thread::sleep(Duration::from_nanos(left));
                return noticed;
            }
            now = monotonic_ns();
            while page.warm_up_is_due_in(now).is_some() && !has_ended() {
                std::hint::spin_loop();
                now = monotonic_ns();
            }
        }
        if is_awake {
            self.rest(begin_ns, now);
        }
        if is_awake { Noticed::Awake } else { Noticed::Rung }
    }

    /// It was awake from here to there, and sleeps for as long.
    fn rest(&mut self, begin_ns: u64, end_ns: u64) {
        self.not_before_ns = end_ns + end_ns.saturating_sub(begin_ns);
    }

    /// Is there an order that was not taken? However many there are, they are one.
    fn take(&mut self, page: &Page) -> bool {
        let ordered = page.warm_ups_ordered();
        std::mem::replace(&mut self.taken, ordered) != ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Instant;
    use wire::SharedPage;

    const MS: Duration = Duration::from_millis(1);

    fn page() -> SharedPage {
        SharedPage::create(1).unwrap()
    }

    fn rung(watch: &mut Watch, page: &Page) -> Option<Noticed> {
        watch.rung(page, || (), || false)
    }

    #[test]
    fn an_order_is_taken_once_however_often_it_is_rung_for() {
        let (page, mut watch) = (page(), Watch::new(true));
        assert_eq!(rung(&mut watch, &page), None, "nobody wants anything");
        page.order_warm_up();
        assert_eq!(rung(&mut watch, &page), Some(Noticed::Rung));
        assert_eq!(rung(&mut watch, &page), None, "it is done");
        page.order_warm_up();
        page.order_warm_up();
        assert_eq!(rung(&mut watch, &page), Some(Noticed::Rung));
        assert_eq!(rung(&mut watch, &page), None, "both at once");
    }

    /// An order that comes a moment after the ring for it, in the middle of the wait.
    fn ordered_soon(watch: &mut Watch, page: &Page) -> Option<Noticed> {
        let daemon = &page;
        page.expect_warm_up();
        std::thread::scope(|scope| {
            watch.rung(page, || drop(scope.spawn(|| daemon.order_warm_up())), || false)
        })
    }

    #[test]
    fn whoever_is_awake_takes_what_comes_and_the_ring_for_it_means_nothing_then() {
        let (page, mut watch) = (page(), Watch::new(true));
        let mut awake = 0;
        for _ in 0..200 {
            // The thread that orders may come too late.
            awake += u32::from(ordered_soon(&mut watch, &page) == Some(Noticed::Awake));
            rung(&mut watch, &page);
            assert_eq!(rung(&mut watch, &page), None, "it was taken, in one way or the other");
            std::thread::sleep(2 * MS);
        }
        assert!(awake > 0, "none was noticed");
    }

    #[test]
    fn nobody_stays_awake_where_that_is_not_to_be() {
        let (page, mut watch) = (page(), Watch::new(false));
        page.expect_warm_up();
        let unready = || panic!("it sleeps");
        assert_eq!(watch.rung(&page, unready, || false), None);
        page.order_warm_up();
        assert_eq!(watch.rung(&page, unready, || false), Some(Noticed::Rung), "as it is told");
    }

    #[test]
    fn what_does_not_come_is_not_waited_for_long_and_what_is_called_off_no_longer() {
        let (page, mut watch) = (page(), Watch::new(true));
        let begin = Instant::now();
        page.expect_warm_up();
        assert_eq!(rung(&mut watch, &page), None);
        assert!(begin.elapsed() >= MS, "it was awake");
        assert!(!page.warm_up_is_expected(monotonic_ns()));
        for end in [|page: &Page| page.expect_no_warm_up(), |page: &Page| page.order_warm_up()] {
            std::thread::sleep(3 * MS);
            page.expect_warm_up();
            let noticed = watch.rung(&page, || end(&page), || false);
            assert_eq!(noticed.is_some(), page.warm_ups_ordered() > 0);
        }
        std::thread::sleep(3 * MS);
        page.expect_warm_up();
        assert_eq!(watch.rung(&page, || (), || true), None, "the session is over");
    }

    #[test]
    fn what_comes_in_the_last_moment_is_taken() {
        let (page, mut watch) = (page(), Watch::new(true));
        page.expect_warm_up();
        let ends = || {
            page.order_warm_up();
            true
        };
        let noticed = watch.rung(&page, || (), ends);
        assert_eq!(noticed.is_some(), page.warm_ups_ordered() > 0);
        assert_eq!(rung(&mut watch, &page), None);
    }

    /// Orders one for an instant to come. Says when.
    fn order_for_later(page: &Page) -> u64 {
        let due_ns = monotonic_ns() + 1_000_000;
        page.order_warm_up_at(due_ns);
        due_ns
    }

    #[test]
    fn the_instant_of_an_order_counts_also_where_it_comes_in_the_last_moment() {
        let (page, mut watch) = (page(), Watch::new(true));
        page.expect_warm_up();
        let due_ns = Cell::new(0);
        let ends = || {
            if due_ns.get() != 0 {
                return false;
            }
            due_ns.set(order_for_later(&page));
            true
        };
        assert_eq!(watch.rung(&page, || (), ends), Some(Noticed::Awake));
        assert!(monotonic_ns() >= due_ns.get(), "it was launched before its time");
    }

    #[test]
    fn the_instant_of_an_order_counts_also_for_whoever_is_not_to_be_awake() {
        for stays_awake in [false, true] {
            let (page, mut watch) = (page(), Watch::new(stays_awake));
            watch.not_before_ns = u64::MAX;
            let due_ns = order_for_later(&page);
            assert_eq!(rung(&mut watch, &page), Some(Noticed::Rung));
            assert!(monotonic_ns() >= due_ns, "it was launched before its time");
        }
    }

    #[test]
    fn it_sleeps_for_as_long_as_it_was_awake() {
        let (page, mut watch) = (page(), Watch::new(true));
        let mut not_before = None::<Instant>;
        let (begin, mut stays) = (Instant::now(), 0);
        while stays < 10 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is never awake");
            let expected_until = Instant::now() + 3 * MS / 2;
            page.expect_warm_up();
            let mut woke = None;
            watch.rung(&page, || woke = Some(Instant::now()), || false);
            let Some(woke) = woke else { continue };
            assert!(not_before.is_none_or(|at| at <= woke), "it is awake all the time");
            not_before = Some(expected_until + expected_until.saturating_duration_since(woke));
            stays += 1;
        }
    }

    #[test]
    fn an_order_of_the_next_daemon_is_an_order() {
        let (old, new) = (page(), page());
        let tenant = SharedPage::open(old.file().try_clone_to_owned().unwrap()).unwrap();
        let mut watch = Watch::new(true);
        old.order_warm_up();
        assert_eq!(rung(&mut watch, &tenant), Some(Noticed::Rung));
        let comes = |new: &SharedPage| {
            tenant.renew(SharedPage::open(new.file().try_clone_to_owned().unwrap()).unwrap()).unwrap();
        };
        comes(&new);
        assert_eq!(rung(&mut watch, &tenant), None, "it wants nothing yet");
        new.order_warm_up();
        assert_eq!(rung(&mut watch, &tenant), Some(Noticed::Rung));
        // It may have wanted one before the tenant looked at its page.
        let newest = page();
        newest.order_warm_up();
        comes(&newest);
        assert_eq!(rung(&mut watch, &tenant), Some(Noticed::Rung));
        assert_eq!(rung(&mut watch, &tenant), None);
    }
}
