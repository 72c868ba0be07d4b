//! Devices and what can be asked about them.

use std::ffi::{CStr, c_char};

use cuda::types::{CUdevice, CUuuid};

use super::{Check, check};
use crate::bench::Bench;

/// Attributes whose value is the same on every GPU of the last ten years, by their numbers in the driver's interface.
const FIXED: &[(&str, i32)] = &[
    ("threads-per-block", 1),
    ("block-x", 2),
    ("block-y", 3),
    ("block-z", 4),
    ("grid-x", 5),
    ("grid-y", 6),
    ("grid-z", 7),
    ("shared-per-block", 8),
    ("constant", 9),
    ("warp", 10),
    ("pitch", 11),
    ("registers", 12),
    ("texture-alignment", 14),
    ("pitch-alignment", 51),
];

/// What a device can do.
const ABILITIES: &[(&str, i32)] = &[
    ("overlap", 15),
    ("timeout", 17),
    ("integrated", 18),
    ("map-host", 19),
    ("compute-mode", 20),
    ("concurrent-kernels", 31),
    ("unified-addressing", 41),
    ("priorities", 78),
    ("managed", 83),
    ("preemption", 90),
    ("cooperative", 95),
    ("host-register", 99),
    ("vmm", 102),
    ("files", 103),
    ("pools", 115),
];

fn attributes(b: &Bench, list: &[(&str, i32)]) {
    for (name, number) in list {
        let mut value = -1;
        b.expect(name, b.cu.cuDeviceGetAttribute(&mut value, *number, b.device));
        b.value(name, value);
    }
}

pub(super) const CHECKS: &[Check] = &[
    check("count", "ok some=true INVALID_VALUE", |b| {
        let mut count = 0;
        b.code(b.cu.cuDeviceGetCount(&mut count));
        b.value("some", count >= 1);
        b.code(b.cu.cuDeviceGetCount(std::ptr::null_mut()));
    }),
    check("get", "ok 0 INVALID_DEVICE INVALID_DEVICE INVALID_VALUE", |b| {
        let (mut count, mut device) = (0, CUdevice(-1));
        b.expect("count", b.cu.cuDeviceGetCount(&mut count));
        b.code(b.cu.cuDeviceGet(&mut device, 0));
        b.say(device.0);
        b.code(b.cu.cuDeviceGet(&mut device, -1));
        b.code(b.cu.cuDeviceGet(&mut device, count));
        b.code(b.cu.cuDeviceGet(std::ptr::null_mut(), 0));
    }),
    check("name", "ok some=true ok length=3 prefix=true INVALID_DEVICE", |b| {
        let mut long: [c_char; 256] = [1; 256];
        b.code(b.cu.cuDeviceGetName(long.as_mut_ptr(), 256, b.device));
        let name = text(&long);
        b.value("some", !name.is_empty());
        let mut short: [c_char; 4] = [1; 4];
        b.code(b.cu.cuDeviceGetName(short.as_mut_ptr(), 4, b.device));
        let part = text(&short);
        b.value("length", part.len());
        b.value("prefix", name.starts_with(&part));
        b.code(b.cu.cuDeviceGetName(short.as_mut_ptr(), 4, CUdevice(-1)));
    }),
    check("memory", "ok some=true INVALID_VALUE INVALID_DEVICE", |b| {
        let mut bytes = 0;
        b.code(b.cu.cuDeviceTotalMem_v2(&mut bytes, b.device));
        b.value("some", bytes > 0);
        b.code(b.cu.cuDeviceTotalMem_v2(std::ptr::null_mut(), b.device));
        b.code(b.cu.cuDeviceTotalMem_v2(&mut bytes, CUdevice(99)));
    }),
    check("uuid", "ok zero=false same=true INVALID_VALUE INVALID_DEVICE", |b| {
        let (mut uuid, mut again) = (CUuuid::default(), CUuuid::default());
        b.code(b.cu.cuDeviceGetUuid_v2(&mut uuid, b.device));
        b.value("zero", uuid == CUuuid::default());
        b.expect("again", b.cu.cuDeviceGetUuid_v2(&mut again, b.device));
        b.value("same", uuid == again);
        b.code(b.cu.cuDeviceGetUuid_v2(std::ptr::null_mut(), b.device));
        b.code(b.cu.cuDeviceGetUuid_v2(&mut uuid, CUdevice(99)));
    }),
    check(
        "fixed attributes",
        "threads-per-block=1024 block-x=1024 block-y=1024 block-z=64 grid-x=2147483647 grid-y=65535 grid-z=65535 \
         shared-per-block=49152 constant=65536 warp=32 pitch=2147483647 registers=65536 texture-alignment=512 \
         pitch-alignment=32",
        |b| attributes(b, FIXED),
    ),
    check(
        "abilities",
        "overlap=1 timeout=0 integrated=0 map-host=1 compute-mode=0 concurrent-kernels=1 unified-addressing=1 \
         priorities=1 managed=1 preemption=1 cooperative=1 host-register=1 vmm=1 files=1 pools=1",
        |b| attributes(b, ABILITIES),
    ),
    check("measures", "multiprocessors=true capability=true engines=true", |b| {
        let [mut count, mut major, mut engines] = [0; 3];
        b.expect("count", b.cu.cuDeviceGetAttribute(&mut count, 16, b.device));
        b.expect("major", b.cu.cuDeviceGetAttribute(&mut major, 75, b.device));
        b.expect("engines", b.cu.cuDeviceGetAttribute(&mut engines, 40, b.device));
        b.value("multiprocessors", count >= 1);
        b.value("capability", major >= 7);
        b.value("engines", engines >= 1);
    }),
    check("attribute errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_DEVICE", |b| {
        let mut value = 0;
        b.code(b.cu.cuDeviceGetAttribute(&mut value, 9999, b.device));
        b.code(b.cu.cuDeviceGetAttribute(&mut value, -1, b.device));
        b.code(b.cu.cuDeviceGetAttribute(std::ptr::null_mut(), 1, b.device));
        b.code(b.cu.cuDeviceGetAttribute(&mut value, 1, CUdevice(99)));
    }),
    check("bus id there and back", "ok length=12 ok same=true", |b| {
        let mut id: [c_char; 64] = [1; 64];
        b.code(b.cu.cuDeviceGetPCIBusId(id.as_mut_ptr(), 64, b.device));
        b.value("length", text(&id).len());
        let mut device = CUdevice(-1);
        b.code(b.cu.cuDeviceGetByPCIBusId(&mut device, id.as_ptr()));
        b.value("same", device == b.device);
    }),
    check("bus id errors", "INVALID_VALUE INVALID_VALUE INVALID_DEVICE", |b| {
        let mut device = CUdevice(-1);
        b.code(b.cu.cuDeviceGetByPCIBusId(&mut device, std::ptr::null()));
        b.code(b.cu.cuDeviceGetByPCIBusId(&mut device, c"nonsense".as_ptr()));
        b.code(b.cu.cuDeviceGetByPCIBusId(&mut device, c"0000:fe:1f.7".as_ptr()));
    }),
    check("peer of itself", "ok can=0", |b| {
        let mut can = -1;
        b.code(b.cu.cuDeviceCanAccessPeer(&mut can, b.device, b.device));
        b.value("can", can);
    }),
];

/// The text in a buffer, up to its end or its first NUL.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|char| char.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
