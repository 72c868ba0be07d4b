//! The frame of every exported function: no panic leaves the library, a callback may not call the driver, and failures
//! are shown on request (`ROTA_VGPU_TRACE=1`).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuda::CUresult;

use crate::notice::notice;

/// What the work of a driver function comes to.
pub(crate) type Outcome = Result<(), CUresult>;

thread_local! {
    /// Whether this thread is in a host callback.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs the work of one exported function.
pub(crate) fn answer(name: &'static str, work: impl FnOnce() -> Outcome) -> CUresult {
    let refused = IN_CALLBACK.try_with(Cell::get).unwrap_or(false) && !may_be_called_back(name);
    let work = || if refused { Err(CUresult::NOT_PERMITTED) } else { work() };
    let result = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(code)) => code,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            notice(format_args!("internal error in {name}: {}", text.unwrap_or("no message")));
            CUresult::UNKNOWN
        }
    };
    if traced() && result != CUresult::SUCCESS {
        notice(format_args!("{name}: {result:?}"));
    }
    result
}

/// Functions that never ask the device.
fn may_be_called_back(name: &str) -> bool {
    matches!(name, "cuGetErrorName" | "cuGetErrorString" | "cuDriverGetVersion")
        || name.starts_with("cuGetProcAddress")
}

/// Runs a callback of the program.
pub(crate) fn in_callback(work: impl FnOnce()) {
    IN_CALLBACK.with(|flag| flag.set(true));
    work();
    IN_CALLBACK.with(|flag| flag.set(false));
}

fn traced() -> bool {
    static TRACED: OnceLock<bool> = OnceLock::new();
    *TRACED.get_or_init(|| std::env::var_os("ROTA_VGPU_TRACE").is_some_and(|value| value == "1"))
}

/// Takes a lock, also one that was held during a panic: what it guards is changed by single steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes exported functions: one symbol, or two of the same signature; their arguments; and the work, an [`Outcome`].
macro_rules! api {
    () => {};
    ($symbol:ident $arguments:tt $work:block $($rest:tt)*) => {
        $crate::guard::export!($symbol $arguments $work);
        $crate::guard::api!($($rest)*);
    };
    ($symbol:ident, $second:ident $arguments:tt $work:block $($rest:tt)*) => {
        $crate::guard::export!($symbol $arguments $work);
        $crate::guard::export!($second $arguments $work);
        $crate::guard::api!($($rest)*);
    };
}

/// Writes functions that have a default stream: the symbol for which it is the legacy one, that for which it is the
/// thread's own, and a name for it in the work.
macro_rules! stream_api {
    ($(|$default:ident| $legacy:ident / $own:ident $arguments:tt $work:block)*) => {$(
        $crate::guard::export!($legacy $arguments {
            let $default = vgpu_messages::stream::StreamRef::Legacy;
            $work
        });
        $crate::guard::export!($own $arguments {
            let $default = vgpu_messages::stream::StreamRef::PerThread;
            $work
        });
    )*};
}

macro_rules! export {
    ($symbol:ident ($($argument:ident: $type:ty),* $(,)?) $work:block) => {
        // SAFETY: the symbol is the driver's, with the driver's signature.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)] // The driver's.
        unsafe extern "C" fn $symbol($($argument: $type),*) -> cuda::CUresult {
            $crate::guard::answer(stringify!($symbol), move || -> $crate::guard::Outcome { $work })
        }
    };
}

pub(crate) use {api, export, stream_api};
