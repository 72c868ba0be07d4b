//! Every function of the driver, exported: the ones that this crate writes, and a refusal for each of the list
//! `not_supported.txt`.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::table;

use crate::{guard, session};

macro_rules! refuse {
    ($symbol:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $symbol() -> CUresult {
            refusal(stringify!($symbol))
        }
    };
}

/// Where a function is. Never called through this, so its type does not matter.
struct Address(*const c_void);

// SAFETY: an address of code, which never changes.
unsafe impl Sync for Address {}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

/// The address of the function exported as `symbol`.
pub(crate) fn address_of(symbol: &str) -> Option<*mut c_void> {
    table::index_of(symbol).map(|index| ADDRESSES[index].0.cast_mut())
}

/// What a function of the list answers: as on the real one, nothing works before `cuInit`.
fn refusal(symbol: &'static str) -> CUresult {
    guard::answer(symbol, || session::current().and(Err(CUresult::NOT_SUPPORTED)))
}
