//! What a program's page shows of its requests, and what is made of that: has the one that is waited for begun, and is it over?

use sched::{Span, TenantId};
use std::time::{Duration, Instant};
use wire::Page;

/// Where requests follow each other at once, one is over when none has followed for so long.
pub(in crate::daemon) const FOLLOWS_WITHIN: Span = Span::from_micros(30);
pub(super) const WAITED_OUT: Duration = Duration::from_nanos(FOLLOWS_WITHIN.0);

/// What a page shows of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// One is served, and its work has begun or is about to: the program has said so.
    Open,
    /// None is, and there is no work.
    Over,
    /// There is work of none, or none yet, or the program does not say.
    Unknown,
}

impl Sight {
    pub(super) fn of(page: &Page) -> Self {
        match page.requests_open() {
            0 if page.requests_are_told() && page.idle_since_ns().is_some() => Self::Over,
            0 => Self::Unknown,
            // It only prepares one.
            _ if page.is_watched() => Self::Unknown,
            _ => Self::Open,
        }
    }
}

/// A request that is expected to end.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) tenant: TenantId,
    /// Before this.
    pub(super) by: Instant,
    /// It is expected to begin before that.
    pub(super) comes: bool,
    /// Another one may follow at once.
    pub(super) is_waited_out: bool,
    /// It was seen to be served: what no request is told of may pause in the middle.
    pub(super) was_open: bool,
    /// Since when it seems to be over.
    pub(super) seen: Option<Instant>,
}

/// What is seen of such a one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Begun,
    Over,
    /// It was over, and another one has begun.
    Followed,
}

impl Ending {
    pub(super) fn look(&mut self, now: Instant, sight: Sight) -> Seen {
        match sight {
            Sight::Over if self.was_open => {
                let since = now.saturating_duration_since(*self.seen.get_or_insert(now));
                if !self.is_waited_out || since >= WAITED_OUT { Seen::Over } else { Seen::Nothing }
            }
            Sight::Open if self.comes => Seen::Begun,
            Sight::Open if self.seen.take().is_some() => Seen::Followed,
            Sight::Open => {
                self.was_open = true;
                Seen::Nothing
            }
            Sight::Over | Sight::Unknown => Seen::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const WHO: TenantId = TenantId(3);

    fn ending(tenant: TenantId, by: Instant) -> Ending {
        Ending { tenant, by, comes: false, is_waited_out: false, was_open: true, seen: None }
    }

    #[test]
    fn where_another_may_follow_an_end_counts_only_if_none_has() {
        let now = Instant::now();
        let mut end = Ending { is_waited_out: true, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing, "another one may follow");
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Over), Seen::Nothing);
        assert_eq!(end.look(now + WAITED_OUT, Sight::Over), Seen::Over, "none did");
        let mut end = Ending { is_waited_out: true, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing);
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Unknown), Seen::Nothing, "it has work again");
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Open), Seen::Followed);
        assert_eq!(
            ending(WHO, now).look(now, Sight::Over),
            Seen::Over,
            "where each comes alone nobody waits"
        );
    }

    #[test]
    fn what_was_not_seen_to_be_served_is_not_seen_to_be_over() {
        let now = Instant::now();
        let mut end = Ending { was_open: false, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing, "it may pause in the middle of one");
        assert_eq!(end.look(now, Sight::Open), Seen::Nothing);
        assert_eq!(end.look(now, Sight::Over), Seen::Over);
    }

    #[test]
    fn a_page_shows_the_end_of_requests_that_its_program_tells_of_and_of_no_others() {
        let page = wire::SharedPage::create(1).unwrap();
        assert_eq!(Sight::of(&page), Sight::Unknown, "it has work, or nobody knows");
        assert!(page.rest(1));
        assert_eq!(Sight::of(&page), Sight::Unknown, "it may wait several times in a request");
        page.tell_requests();
        page.set_requests_open(1);
        assert_eq!(Sight::of(&page), Sight::Open);
        assert!(page.is_idle_when_watched());
        assert_eq!(Sight::of(&page), Sight::Unknown, "it is prepared");
        assert!(page.take_watch());
        assert_eq!(Sight::of(&page), Sight::Open);
        page.set_requests_open(0);
        assert_eq!(Sight::of(&page), Sight::Over);
        assert!(!page.wake(2));
        assert_eq!(Sight::of(&page), Sight::Unknown, "it has work of its own");
    }
}
