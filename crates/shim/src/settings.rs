//! What the environment says, in the variables that `rota run` sets.
//!
//! | variable | meaning |
//! |---|---|
//! | `ROTA_DISABLE` | not `0`: a plain forwarder, whatever else is set |
//! | `ROTA_SOCKET` | where the daemon is; without it the shim is a plain forwarder |
//! | `ROTA_JOB` | the job that this process belongs to |
//! | `ROTA_REQUIRED` | not `0`: where the daemon does not take this process in, `cuInit` fails |
//! | `ROTA_POOLS` | `native`: stream-ordered memory is the driver's, and does not move |
//! | `ROTA_RDMA` | not `0`: memory that the program creates for RDMA can be registered, and does not move |
//! | `ROTA_WHOLE_HANDLES` | not `0`: memory above 256 MiB that the program creates to share is one handle, and does not move |
//! | `ROTA_WAIT_FOR_DAEMON` | for how many seconds a program whose memory is away waits for the next daemon; 600 unless set |
//! | `ROTA_WAITS` | `driver`: waits for the GPU are the driver's, also while the program is frozen; `patient`: they are not, also on a virtual GPU, whose waits keep no processor busy |
//! | `ROTA_HINTS` | which hints are given: `auto` (all, unless set), `sdk` (only the program's), `shim` (also the shim's own), `forecast` (also those from the rhythm of requests), `off` (none) |
//! | `ROTA_STANDBY` | whether rota stays awake for fractions of a millisecond before a hinted request: `auto` (with four processors or more, unless set), `off` (never), `on` (also with fewer) |
//! | `ROTA_IOCTL_TRACE` | a file to which all RM calls are appended, with or without a daemon |

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::forward::once::Once;
use crate::forward::real::disabled;

/// How long a program waits for the next daemon unless it is told otherwise.
const USUAL_WAIT: Duration = Duration::from_secs(600);

/// The daemon's socket; None if this process is not to be a tenant.
pub(crate) fn socket() -> Option<PathBuf> {
    if disabled() { None } else { variable("ROTA_SOCKET").map(PathBuf::from) }
}

/// The job of programs that were not started in one.
pub(crate) const NO_JOB: &str = "-";

/// The job's name.
pub(crate) fn job() -> String {
    variable("ROTA_JOB").map_or_else(|| NO_JOB.to_owned(), |job| job.to_string_lossy().into_owned())
}

/// Whether this process may use the GPU as a tenant only.
pub(crate) fn required() -> bool {
    variable("ROTA_REQUIRED").is_some_and(|value| value != "0")
}

/// How long a program that cannot go on without a daemon waits for the next one.
pub(crate) fn wait_for_daemon() -> Duration {
    let seconds = variable("ROTA_WAIT_FOR_DAEMON").and_then(|value| value.to_str()?.parse().ok());
    seconds.map_or(USUAL_WAIT, |seconds: u32| Duration::from_secs(seconds.into()))
}

/// Where RM calls are recorded, if they are.
pub(crate) fn ioctl_trace() -> Option<PathBuf> {
    if disabled() { None } else { variable("ROTA_IOCTL_TRACE").map(PathBuf::from) }
}

/// Whether RM calls are of interest. Asked in every RM call, so the environment is read only once.
pub(crate) fn watches_channels() -> bool {
    static ANSWER: Once<bool> = Once::new();
    *ANSWER.get_or_make(|| socket().is_some() || ioctl_trace().is_some())
}

/// Whether stream-ordered memory is left to the driver.
pub(crate) fn native_pools() -> bool {
    static ANSWER: Once<bool> = Once::new();
    *ANSWER.get_or_make(|| variable("ROTA_POOLS").is_some_and(|value| value == "native"))
}

/// Whether memory is made for RDMA where the program asks for that.
pub(crate) fn rdma() -> bool {
    static ANSWER: Once<bool> = Once::new();
    *ANSWER.get_or_make(|| variable("ROTA_RDMA").is_some_and(|value| value != "0"))
}

/// Whether large memory that can be shared is made as one handle.
pub(crate) fn whole_handles() -> bool {
    static ANSWER: Once<bool> = Once::new();
    *ANSWER.get_or_make(|| variable("ROTA_WHOLE_HANDLES").is_some_and(|value| value != "0"))
}

/// Whether waits for the GPU are left to the driver.
pub(crate) fn waits_in_driver() -> bool {
    static ANSWER: Once<bool> = Once::new();
    *ANSWER.get_or_make(|| match variable("ROTA_WAITS") {
        Some(value) => value == "driver",
        None => variable("ROTA_VGPU").is_some(),
    })
}

/// Whether threads of rota may stay awake for moments.
pub(crate) fn stays_awake() -> bool {
    match variable("ROTA_STANDBY") {
        Some(value) if value == "off" => false,
        Some(value) if value == "on" => true,
        _ => wire::may_stay_awake_as_guest(),
    }
}

/// Which hints are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hinting {
    /// All there are.
    Auto,
    /// Those of the program.
    Sdk,
    /// Those, and the shim's own.
    Shim,
    /// Those of the program, and the daemon's forecasts.
    Forecast,
    /// None.
    Off,
}

impl Hinting {
    fn named(name: Option<&str>) -> Self {
        match name {
            Some("off") => Self::Off,
            Some("sdk") => Self::Sdk,
            Some("shim") => Self::Shim,
            Some("forecast") => Self::Forecast,
            // Something that nobody knows here is no reason to take away what is usual.
            _ => Self::Auto,
        }
    }

    /// Does the shim give hints of its own?
    pub(crate) fn sight(self) -> bool {
        matches!(self, Self::Auto | Self::Shim)
    }

    /// May the daemon forecast requests?
    pub(crate) fn forecast(self) -> bool {
        matches!(self, Self::Auto | Self::Forecast)
    }
}

/// See [`Hinting`]. Asked for every hint, so the environment is read only once.
pub(crate) fn hints() -> Hinting {
    static ANSWER: Once<Hinting> = Once::new();
    *ANSWER.get_or_make(|| Hinting::named(variable("ROTA_HINTS").as_deref().and_then(OsStr::to_str)))
}

/// A variable that is set to nothing counts as not set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_hint_can_be_had_alone() {
        let has = |name| {
            let hinting = Hinting::named(name);
            (hinting != Hinting::Off, hinting.sight(), hinting.forecast())
        };
        assert_eq!(has(None), (true, true, true));
        assert_eq!(has(Some("auto")), (true, true, true));
        assert_eq!(has(Some("sdk")), (true, false, false));
        assert_eq!(has(Some("shim")), (true, true, false));
        assert_eq!(has(Some("forecast")), (true, false, true));
        assert_eq!(has(Some("off")), (false, false, false));
        assert_eq!(has(Some("nonsense")), (true, true, true));
    }
}
