//! Memory that nobody has: it stays mapped, and with the daemon, for a while, so that a program that frees and allocates in a
//! loop does no more than look into tables.
//!
//! It is bounded in size and in time, counts as free for the program, and goes before anything is out of memory.

use wire::ToDaemon;

use super::growth::unmake;
use super::now_ns;
use super::table::{Allocation, Dropped, Table};
use crate::session::Session;

/// How long a range is kept without use.
const IDLE_NS_MAX: u64 = 1_000_000_000;
/// How much of it goes at once, so that the daemon's orders are not held up.
const DROP_BYTES_MAX: u64 = 2 << 30;
/// What part of the GPU may be kept so: one in so many.
const KEPT_PART: u64 = 8;
/// The least time between two looks.
const LOOK_NS_MIN: u64 = 10_000_000;

/// Takes back what the program had; the device must be done with it.
pub(crate) fn give(session: &Session, table: &mut Table, allocation: &Allocation) {
    table.give(allocation, now_ns());
    keep_some(session, table);
}

/// Some memory is idle now: keeps it for a while, within bounds.
pub(crate) fn keep_some(session: &Session, table: &mut Table) {
    let shared = table.drop_shared();
    if !shared.is_empty() {
        let_go(session, table, shared);
        session.wake_agent();
    }
    // Without the daemon there is no agent that would look after it.
    let kept_max = if session.has_ended() { 0 } else { session.capacity_bytes / KEPT_PART };
    let idle = table.idle_bytes();
    if idle > kept_max {
        let dropped = table.drop_idle(u64::MAX, idle - kept_max);
        let_go(session, table, dropped);
        session.wake_agent();
    } else if idle > 0 && !table.is_watched {
        table.is_watched = true;
        session.wake_agent();
    }
}

/// Lets everything go that nobody has. False if there was nothing.
pub(crate) fn drop_all(session: &Session) -> bool {
    let mut table = session.table();
    let dropped = table.drop_idle(u64::MAX, u64::MAX);
    let any = !dropped.is_empty();
    let_go(session, &mut table, dropped);
    drop(table);
    if any {
        session.wake_agent();
    }
    any
}

/// Lets go what nobody has had for a while. Returns after how many nanoseconds to look again, if at all.
pub(crate) fn trim(session: &Session) -> Option<u64> {
    let mut table = session.table();
    if !table.is_watched {
        return None;
    }
    let now = now_ns();
    let dropped = table.drop_idle(now.saturating_sub(IDLE_NS_MAX), DROP_BYTES_MAX);
    let_go(session, &mut table, dropped);
    let next = table.idle_since().map(|since| (since + IDLE_NS_MAX).saturating_sub(now).max(LOOK_NS_MIN));
    table.is_watched = next.is_some();
    next
}

/// Lets memory go that is out of the table, and has the daemon told, in the table's order.
pub(super) fn let_go(session: &Session, table: &mut Table, dropped: Vec<Dropped>) {
    if dropped.is_empty() {
        return;
    }
    for Dropped { block, grant, parts } in dropped {
        unmake(session.driver, block, &parts);
        for part in parts.iter().filter(|part| part.exported) {
            session.say_freed(part.handle);
        }
        if parts.iter().any(|part| !part.exported) {
            session.say(ToDaemon::Returned { grant });
        }
    }
    session.open_gate_if_whole(table);
}
