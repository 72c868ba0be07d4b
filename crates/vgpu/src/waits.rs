//! How a program waits for the device: asleep. Where `ROTA_VGPU_SPINS` is set, as the real driver does it unless it is told
//! otherwise: by looking again and again, with a processor busy all the while.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cuda::CUresult;
use vgpu_messages::Request;

use crate::guard::Outcome;
use crate::session;

/// From one look to the next.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Waits by `wait`, where `look` says whether there is anything to wait for.
pub(crate) fn by(wait: Request, look: impl Fn() -> Request) -> Outcome {
    static SPINS: OnceLock<bool> = OnceLock::new();
    if *SPINS.get_or_init(|| std::env::var_os("ROTA_VGPU_SPINS").is_some_and(|value| value != "0")) {
        while session::tell(look()) == Err(CUresult::NOT_READY) {
            let looked = Instant::now();
            while looked.elapsed() < LOOK_AGAIN {
                std::hint::spin_loop();
            }
        }
    }
    session::tell(wait)
}
