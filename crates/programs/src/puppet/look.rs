//! What a program sees of memory, by every way there is.

use std::fmt;

use cuda::types::CUuuid;
use nvml::Nvml;

use crate::bench::Bench;

/// By the driver, and by both versions of NVML, which is asked anew each time: it may be initialised late.
pub(super) struct Look {
    device_total: u64,
    free: u64,
    total: u64,
    nvml: Result<ByNvml, String>,
}

struct ByNvml {
    /// Total, free, used.
    first: [u64; 3],
    second: [u64; 3],
    processes: Vec<(u32, u64)>,
}

impl Look {
    pub(super) fn at(bench: &Bench) -> Self {
        let (mut device_total, mut free, mut total) = (0, 0, 0);
        bench.expect("total", bench.cu.cuDeviceTotalMem_v2(&mut device_total, bench.device));
        bench.expect("info", bench.cu.cuMemGetInfo_v2(&mut free, &mut total));
        let mut uuid = CUuuid::default();
        bench.expect("uuid", bench.cu.cuDeviceGetUuid_v2(&mut uuid, bench.device));
        let nvml = by_nvml(&uuid.to_string());
        Self { device_total: device_total as u64, free: free as u64, total: total as u64, nvml }
    }
}

/// The library by its name, as programs open it.
fn by_nvml(uuid: &str) -> Result<ByNvml, String> {
    let library = cuda::Library::open(nvml::SONAME).map_err(|error| error.to_string())?;
    let look = || {
        let nvml = Nvml::of(&library)?;
        let device = nvml.device(uuid)?;
        let (first, second) = (nvml.memory_by_first(device)?, nvml.memory(device)?);
        let processes = nvml.processes(device)?;
        Ok::<_, nvml::NvmlError>(ByNvml {
            first: [first.total, first.free, first.used],
            second: [second.total, second.free, second.used],
            processes,
        })
    };
    look().map_err(|error| error.to_string())
}

impl fmt::Display for Look {
    /// As JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nvml = match &self.nvml {
            Ok(ByNvml { first, second, processes }) => {
                serde_json::json!({ "first": first, "second": second, "processes": processes })
            }
            Err(error) => serde_json::json!({ "error": error }),
        };
        let (device_total, free, total) = (self.device_total, self.free, self.total);
        let all =
            serde_json::json!({ "device_total": device_total, "free": free, "total": total, "nvml": nvml });
        write!(f, "{all}")
    }
}
