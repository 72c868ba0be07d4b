//! Phases in which the program gives way to others as soon as it has no work: a checkpoint, say.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use wire::ToDaemon;

use super::{Said, present, take_one, unheard};
use crate::guard::guarded;

/// Phases that this process is in: several threads may be in one each.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// A phase begins (not 0) or ends (0).
#[unsafe(no_mangle)]
extern "C" fn rota_shim_phase(begins: c_int) -> c_int {
    guarded("rota_shim_phase", || Said::NoDaemon, || change(begins != 0)).into()
}

fn change(begins: bool) -> Said {
    if begins {
        OPEN.fetch_add(1, SeqCst);
    } else if !take_one(&OPEN) {
        return Said::Invalid;
    }
    publish();
    let mut said = None;
    for session in present() {
        let heard = session.connection.send_at_once(&ToDaemon::Phase);
        said = Some(if heard { Said::Heard } else { Said::Dropped });
    }
    said.unwrap_or_else(unheard)
}

/// Says in all pages in how many phases it is.
pub(super) fn publish() {
    super::publish(&OPEN, |page, open| page.set_phases_open(open));
}

pub(super) fn forget() {
    OPEN.store(0, SeqCst);
}
