//! NVML on a machine of its own, called as a program calls it. The device, `vgpud`, has to be built beside the library.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::path::PathBuf;

use cuda::Library;

const SUCCESS: c_uint = 0;
const UNINITIALIZED: c_uint = 1;
const INVALID_ARGUMENT: c_uint = 2;
const INSUFFICIENT_SIZE: c_uint = 7;
const TIMEOUT: c_uint = 10;

fn newest(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    let hint = "cargo build -p rota-vgpu-nvml -p rota-vgpu-device";
    built.max().unwrap_or_else(|| panic!("{name} is not built: {hint}")).1
}

/// NVML's functions take numbers and pointers alone: this calls one with up to three of them.
struct Nvml(Library);

impl Nvml {
    fn call(&self, name: &str, arguments: [usize; 3]) -> c_uint {
        type Function = unsafe extern "C" fn(usize, usize, usize) -> c_uint;
        let symbol = self.0.symbol(&CString::new(name).unwrap()).unwrap_or_else(|| panic!("no {name}"));
        // SAFETY: up to three integer arguments are passed in registers, and one too many is not looked at.
        unsafe {
            std::mem::transmute::<*mut c_void, Function>(symbol.as_ptr())(
                arguments[0],
                arguments[1],
                arguments[2],
            )
        }
    }
}

fn at<T>(place: &mut T) -> usize {
    std::ptr::from_mut(place).expose_provenance()
}

/// All in one: the library and the environment belong to the process.
#[test]
fn a_machine_as_nvml_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "gpus = 2\nmemory = \"512MiB\"\nname = \"a virtual one\"\nlinger = \"1s\"\n";
    std::fs::write(folder.path().join("vgpu.toml"), spec).unwrap();
    // SAFETY: no other thread of this process looks at the environment now.
    unsafe {
        std::env::set_var("ROTA_VGPU", folder.path());
        std::env::set_var("ROTA_VGPUD", newest("vgpud"));
    }
    let nvml = Nvml(Library::open(newest("libvgpu_nvml.so")).unwrap());
    let mut count: c_uint = 0;
    assert_eq!(nvml.call("nvmlDeviceGetCount_v2", [at(&mut count), 0, 0]), UNINITIALIZED);
    assert_eq!(nvml.call("nvmlInit_v2", [0; 3]), SUCCESS);
    assert_eq!(nvml.call("nvmlDeviceGetCount_v2", [at(&mut count), 0, 0]), SUCCESS);
    assert_eq!(count, 2);

    let mut device = 0_usize;
    assert_eq!(nvml.call("nvmlDeviceGetHandleByIndex_v2", [2, at(&mut device), 0]), INVALID_ARGUMENT);
    assert_eq!(nvml.call("nvmlDeviceGetHandleByIndex_v2", [1, at(&mut device), 0]), SUCCESS);
    let mut text: [c_char; 96] = [0; 96];
    assert_eq!(nvml.call("nvmlDeviceGetName", [device, at(&mut text), 5]), INSUFFICIENT_SIZE);
    assert_eq!(nvml.call("nvmlDeviceGetName", [device, at(&mut text), 96]), SUCCESS);
    // SAFETY: the function closes its text with a zero.
    assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }, c"a virtual one");
    assert_eq!(nvml.call("nvmlDeviceGetUUID", [device, at(&mut text), 96]), SUCCESS);
    let mut again = 0_usize;
    assert_eq!(nvml.call("nvmlDeviceGetHandleByUUID", [at(&mut text), at(&mut again), 0]), SUCCESS);
    assert_eq!(again, device);

    let mut memory = [0_u64; 3];
    assert_eq!(nvml.call("nvmlDeviceGetMemoryInfo", [device, at(&mut memory), 0]), SUCCESS);
    assert_eq!(memory, [512 << 20, 512 << 20, 0]);
    let (mut processes, mut milliwatts, mut millijoules): (c_uint, c_uint, u64) = (0, 0, 0);
    assert_eq!(
        nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", [device, at(&mut processes), 0]),
        SUCCESS
    );
    assert_eq!(processes, 0);
    assert_eq!(nvml.call("nvmlDeviceGetPowerUsage", [device, at(&mut milliwatts), 0]), SUCCESS);
    assert!(milliwatts > 0);
    assert_eq!(nvml.call("nvmlDeviceGetTotalEnergyConsumption", [device, at(&mut millijoules), 0]), SUCCESS);

    let (mut set, mut event) = (0_usize, [0_u64; 4]);
    assert_eq!(nvml.call("nvmlEventSetCreate", [at(&mut set), 0, 0]), SUCCESS);
    assert_eq!(nvml.call("nvmlDeviceRegisterEvents", [device, 8, set]), SUCCESS);
    assert_eq!(nvml.call("nvmlEventSetWait_v2", [set, at(&mut event), 30]), TIMEOUT);
    assert_eq!(nvml.call("nvmlEventSetFree", [set, 0, 0]), SUCCESS);
    assert_eq!(nvml.call("nvmlShutdown", [0; 3]), SUCCESS);
    assert_eq!(nvml.call("nvmlShutdown", [0; 3]), UNINITIALIZED);
}
