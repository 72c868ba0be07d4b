//! Class and weight of this process's job, changed by the process itself, as its user could with `rota set`.

use std::ffi::{c_char, c_int};

use wire::{Class, ToDaemon};

use super::{Said, present, unheard};
use crate::grants::Answer;
use crate::guard::guarded;

/// Asks for another class (0 best-effort, 1 latency-critical, -1 as it is) and another weight (0 as it is) for the job, and
/// waits for the answer. Why it is refused is written to `reason`, cut to `bytes` with a zero at its end.
///
/// # Safety
/// `reason` is null, or there is room for `bytes` at it.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_shim_set(class: c_int, weight: u32, reason: *mut c_char, bytes: usize) -> c_int {
    let (said, why) = guarded("rota_shim_set", || (Said::NoDaemon, String::new()), || change(class, weight));
    if !reason.is_null() && bytes > 0 {
        let length = why.len().min(bytes - 1);
        // SAFETY: by the caller's promise there is room for so many bytes and a zero.
        unsafe {
            std::ptr::copy_nonoverlapping(why.as_ptr(), reason.cast(), length);
            reason.add(length).write(0);
        }
    }
    said.into()
}

fn change(class: c_int, weight: u32) -> (Said, String) {
    let class = match class {
        -1 => None,
        0 => Some(Class::BestEffort),
        1 => Some(Class::LatencyCritical),
        _ => return (Said::Invalid, "a class is 0 or 1, or -1 to leave it".to_owned()),
    };
    let weight = (weight != 0).then_some(weight);
    // The job is the same on all GPUs.
    let Some(session) = present().next() else { return (unheard(), String::new()) };
    match session.ask_for_terms(|request| ToDaemon::Set { request, class, weight }) {
        Answer::Granted | Answer::GrantedHost(_) => (Said::Heard, String::new()),
        Answer::Denied(reason) => (Said::Refused, reason),
        Answer::Ended => (Said::NoDaemon, String::new()),
    }
}
