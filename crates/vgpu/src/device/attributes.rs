//! `cuDeviceGetAttribute`: those of an H200 where they describe what a kernel may count on, the machine's description
//! where that says, and 0 for what the virtual GPU does not do.

use std::ffi::c_int;

use vgpu_messages::DeviceDescription;

/// Threads that fit on a multiprocessor.
pub(crate) const THREADS_PER_MULTIPROCESSOR: i32 = 2048;
/// Registers of a multiprocessor.
pub(crate) const REGISTERS_PER_MULTIPROCESSOR: i32 = 65536;
/// Shared memory that one block can have at most.
pub(crate) const SHARED_BYTES_MAX: i32 = 232_448;

/// The last attribute of the interface that this library knows.
const LAST: c_int = 145;

/// The value of an attribute, by its number; None for a number that is none.
pub(crate) fn attribute(device: &DeviceDescription, number: c_int) -> Option<c_int> {
    let (domain, bus, slot) = device.pci;
    let value = match number {
        1 => 1024,       // threads per block
        2 | 3 => 1024,   // block x, y
        4 => 64,         // block z
        5 => i32::MAX,   // grid x
        6 | 7 => 65535,  // grid y, z
        8 => 49152,      // shared memory per block
        9 => 65536,      // constant memory
        10 => 32,        // warp
        11 => i32::MAX,  // pitch
        12 => 65536,     // registers per block
        13 => 1_980_000, // clock, kHz
        14 => 512,       // texture alignment
        15 => 1,         // copies beside kernels
        16 => i32::try_from(device.multiprocessors).unwrap_or(i32::MAX),
        17 | 18 => 0, // kernel timeout, integrated
        19 => 1,      // host memory can be mapped
        20 => device.compute_mode as i32,
        21 => 131_072, // texture 1D width
        22 => 131_072, // texture 2D
        23 => 65536,
        24..=26 => 16384, // texture 3D
        27 | 28 => 32768, // texture 2D layered
        29 => 2048,
        30 => 512, // surface alignment
        31 => 1,   // kernels beside kernels
        32 => 1,   // ECC
        33 => i32::try_from(bus).unwrap_or(0),
        34 => i32::try_from(slot).unwrap_or(0),
        35 => 0,          // TCC
        36 => 3_201_000,  // memory clock, kHz
        37 => 6144,       // memory bus, bits
        38 => 62_914_560, // L2
        39 => THREADS_PER_MULTIPROCESSOR,
        40 => 2,     // copy engines
        41 => 1,     // unified addressing
        42 => 32768, // texture 1D layered
        43 => 2048,
        50 => i32::try_from(domain).unwrap_or(0),
        51 => 32, // texture pitch alignment
        75 => i32::try_from(device.compute_capability.0).unwrap_or(0),
        76 => i32::try_from(device.compute_capability.1).unwrap_or(0),
        78..=80 => 1,  // stream priorities, L1 for globals and locals
        81 => 233_472, // shared memory per multiprocessor
        82 => REGISTERS_PER_MULTIPROCESSOR,
        83 => 1,      // managed memory
        87 => 2,      // single to double
        90 | 91 => 1, // preemption, host pointers of registered memory
        95 => 1,      // cooperative launch
        97 => SHARED_BYTES_MAX,
        99 => 1,        // host register
        102 | 103 => 1, // VMM, files
        106 => 32,      // blocks per multiprocessor
        111 => 1024,    // shared memory that the system keeps
        113 => 1,       // read-only host register
        115 => 1,       // pools
        122 | 123 => 1, // 64-bit and NOR stream operations
        129 => 0,       // function pointers
        134 => i32::try_from(device.numa_node).unwrap_or(-1),
        131 => -1, // memory as a NUMA node
        // All others are abilities that the virtual GPU lacks, sizes of things that it lacks, or numbers of none.
        number if (1..=LAST).contains(&number) => 0,
        _ => return None,
    };
    Some(value)
}
