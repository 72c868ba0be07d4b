//! What an address is, as the program knows it. Of rota's memory the table says so, also while it is away; of any other
//! address the driver.

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{
    CU_MEMORYTYPE_DEVICE, CUcontext, CUdevice, CUdeviceptr, CUmemAllocationHandleType,
    CUpointer_attribute as Attribute,
};

use super::heap::Block;
use super::query::write_unless_null;
use super::second_reference::{if_it_stays, is_refused};
use super::table::{Allocation, Part, Table};
use super::{native, while_mapped};
use crate::guard::guarded;
use crate::session;

/// An address that is nobody's, for what the driver says about such.
const NOBODYS: CUdeviceptr = CUdeviceptr(0x1000);
/// The context may read and write it.
const READ_WRITE: u32 = 3;

/// The allocation around an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    match guarded("cuMemGetAddressRange", || Place::Elsewhere, || place(address)) {
        // SAFETY: the caller's arguments, as they came.
        Place::Elsewhere => unsafe { native::cuMemGetAddressRange_v2(base, bytes, address) },
        Place::Free => CUresult::NOT_FOUND,
        Place::In(Known {
            allocation: Allocation { block: Block { address: start, .. }, asked_bytes: size, .. },
            ..
        })
        | Place::Mapped(View { start, bytes: size, .. }) => {
            // SAFETY: null or a place for the answer, by the caller's word.
            unsafe {
                write_unless_null(base, CUdeviceptr(start));
                write_unless_null(bytes, size as usize);
            }
            CUresult::SUCCESS
        }
    }
}

/// One property of an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: Attribute,
    address: CUdeviceptr,
) -> CUresult {
    if is_refused(attribute, address) {
        // SAFETY: the caller's arguments, as they came.
        let native = || unsafe { native::cuPointerGetAttribute(data, attribute, address) };
        return if_it_stays("cuPointerGetAttribute", address, 1, native);
    }
    let found = guarded("cuPointerGetAttribute", || Place::Elsewhere, || place(address));
    // SAFETY: the caller's arguments, as they came.
    let native = || while_mapped(|| unsafe { native::cuPointerGetAttribute(data, attribute, address) });
    match found {
        Place::Mapped(view) => {
            let mut result = native();
            // Of the host's memory the driver does not say which device it serves.
            if result == CUresult::INVALID_VALUE && view.is_hosted(attribute) && !data.is_null() {
                result = CUresult::SUCCESS;
            }
            if let (CUresult::SUCCESS, Some(value)) = (result, view.value(attribute)) {
                // SAFETY: the driver has just written this attribute there.
                unsafe { value.put(data) };
            }
            result
        }
        Place::Free => CUresult::INVALID_VALUE,
        Place::In(known) if !data.is_null() && is_known(attribute) => match known.value(attribute, address) {
            Some(value) => {
                // SAFETY: not null, and by the caller's word a place for this attribute.
                unsafe { value.put(data) };
                CUresult::SUCCESS
            }
            None => CUresult::INVALID_VALUE,
        },
        _ => native(),
    }
}

/// Several properties of an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut Attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the caller promises `count` attributes, if any place at all.
    let asked = |index| unsafe { attributes.add(index).read() };
    let all = 0..if attributes.is_null() { 0 } else { count as usize };
    if all.clone().any(|index| is_refused(asked(index), address)) {
        return CUresult::NOT_SUPPORTED;
    }
    let found = guarded("cuPointerGetAttributes", || Place::Elsewhere, || place(address));
    // SAFETY: the caller's arguments, but for the address.
    let native = |address| unsafe { native::cuPointerGetAttributes(count, attributes, data, address) };
    // SAFETY: the driver has just written each attribute to its place.
    let put = |index, value: Option<Value>| unsafe {
        if let Some(value) = value {
            value.put(data.add(index).read());
        }
    };
    let known = match found {
        Place::Elsewhere => return while_mapped(|| native(address)),
        Place::Free => return native(NOBODYS),
        Place::Mapped(view) => {
            let result = while_mapped(|| native(address));
            if result == CUresult::SUCCESS {
                all.for_each(|index| put(index, view.value(asked(index))));
            }
            return result;
        }
        Place::In(known) => known,
    };
    // The driver says what is wrong with the question, and what it knows of properties that are new.
    let is_all_known = all.clone().all(|index| is_known(asked(index)));
    let result = if is_all_known { native(NOBODYS) } else { while_mapped(|| native(address)) };
    if result == CUresult::SUCCESS {
        all.for_each(|index| put(index, known.value(asked(index), address)));
    }
    result
}

/// Whose an address is.
enum Place {
    /// Not rota's.
    Elsewhere,
    /// Rota's, but the program has nothing there.
    Free,
    In(Known),
    /// What the program created and mapped there, or opened of another process: the driver knows it, but for what rota
    /// changed.
    Mapped(View),
}

/// What the program created, where it mapped it; or what it opened.
#[derive(Clone, Copy)]
struct View {
    start: u64,
    bytes: u64,
    buffer: u64,
    handle_types: CUmemAllocationHandleType,
    /// The driver sees it as several.
    is_in_parts: bool,
    /// Where it was opened, which the driver does not know.
    opened_in: Option<CUcontext>,
    /// The device it is told to be on, if some of it lies in the host's memory.
    hosted_for: Option<CUdevice>,
}

impl View {
    /// Is this a property that the host's memory has otherwise?
    fn is_hosted(&self, attribute: Attribute) -> bool {
        self.hosted_for.is_some() && [Attribute::MEMORY_TYPE, Attribute::DEVICE_ORDINAL].contains(&attribute)
    }

    /// A property that the driver would tell otherwise.
    fn value(&self, attribute: Attribute) -> Option<Value> {
        match attribute {
            Attribute::ALLOWED_HANDLE_TYPES => Some(Value::Long(self.handle_types.0.into())),
            // The driver's changes when memory moves.
            Attribute::BUFFER_ID if self.opened_in.is_none() => Some(Value::Long(self.buffer)),
            Attribute::MEMORY_TYPE if self.hosted_for.is_some() => Some(Value::Short(CU_MEMORYTYPE_DEVICE)),
            Attribute::DEVICE_ORDINAL => self.hosted_for.map(|device| Value::Short(device.0 as u32)),
            Attribute::CONTEXT => self.opened_in.map(|context| Value::Long(context.0.addr() as u64)),
            Attribute::RANGE_START_ADDR | Attribute::MAPPING_BASE_ADDR if self.is_in_parts => {
                Some(Value::Long(self.start))
            }
            Attribute::RANGE_SIZE | Attribute::MAPPING_SIZE if self.is_in_parts => {
                Some(Value::Long(self.bytes))
            }
            _ => None,
        }
    }
}

/// An allocation as the program knows it.
#[derive(Clone, Copy)]
struct Known {
    allocation: Allocation,
    context: CUcontext,
    device: CUdevice,
}

fn place(address: CUdeviceptr) -> Place {
    let Some(session) = session::around(address.0) else { return opened(address.0) };
    let table = session.table();
    match table.around(address.0) {
        Some(allocation) => {
            let (context, device) = table.owner(allocation.heap).unwrap_or_default();
            Place::In(Known { allocation: *allocation, context, device })
        }
        None if table.overlaps(address.0, 1) => Place::Free,
        None => {
            let view = view(&table, address.0);
            drop(table);
            view.map_or_else(|| opened(address.0), Place::Mapped)
        }
    }
}

/// What was opened of another process.
fn opened(address: u64) -> Place {
    let found = session::all().find_map(|session| session.names().around(address));
    found.map_or(Place::Elsewhere, |(start, bytes, context)| {
        Place::Mapped(View {
            start,
            bytes,
            buffer: 0,
            handle_types: CUmemAllocationHandleType::NONE,
            is_in_parts: true,
            opened_in: Some(context),
            hosted_for: None,
        })
    })
}

fn view(table: &Table, address: u64) -> Option<View> {
    let mapped = table.created().around(address)?;
    let created = table.created().get(mapped.number)?;
    Some(View {
        start: mapped.address,
        bytes: mapped.bytes,
        buffer: mapped.buffer,
        handle_types: created.kind.handle_types,
        is_in_parts: created.parts.len() > 1,
        opened_in: None,
        hosted_for: created.parts.iter().any(Part::is_on_host).then_some(created.kind.device),
    })
}

/// A value, with the size that programs expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Short(u32),
    Long(u64),
}

impl Value {
    /// # Safety
    /// A value of this size can be written there, or it is null.
    unsafe fn put(self, place: *mut c_void) {
        if place.is_null() {
            return;
        }
        match self {
            // SAFETY: as this function's own contract.
            Self::Short(value) => unsafe { place.cast::<u32>().write_unaligned(value) },
            // SAFETY: as this function's own contract.
            Self::Long(value) => unsafe { place.cast::<u64>().write_unaligned(value) },
        }
    }
}

/// Whether rota knows what this property means.
fn is_known(attribute: Attribute) -> bool {
    (Attribute::CONTEXT.0..=Attribute::IS_HW_DECOMPRESS_CAPABLE.0).contains(&attribute.0)
}

impl Known {
    /// A property as the native driver would tell it; None where there is none.
    fn value(&self, attribute: Attribute, address: CUdeviceptr) -> Option<Value> {
        use Value::{Long, Short};
        let Self { allocation, context, device } = self;
        let is_plain = allocation.pool.is_null();
        Some(match attribute {
            Attribute::CONTEXT => Long(context.0.addr() as u64),
            Attribute::MEMORY_TYPE => Short(CU_MEMORYTYPE_DEVICE),
            Attribute::DEVICE_POINTER => Long(address.0),
            Attribute::SYNC_MEMOPS => Short(allocation.sync_memops.into()),
            Attribute::BUFFER_ID | Attribute::MEMORY_BLOCK_ID => Long(allocation.buffer),
            Attribute::DEVICE_ORDINAL => Short(device.0 as u32),
            Attribute::IS_LEGACY_CUDA_IPC_CAPABLE => Short(is_plain.into()),
            Attribute::RANGE_START_ADDR | Attribute::MAPPING_BASE_ADDR => Long(allocation.block.address),
            Attribute::RANGE_SIZE => Long(allocation.asked_bytes),
            Attribute::MAPPING_SIZE => Long(allocation.block.bytes),
            Attribute::MAPPED => Short(1),
            Attribute::ALLOWED_HANDLE_TYPES => Long(0),
            Attribute::ACCESS_FLAGS => Short(READ_WRITE),
            Attribute::MEMPOOL_HANDLE => Long(allocation.pool.0.addr() as u64),
            // It could be registered natively, but not while rota moves it.
            Attribute::IS_GPU_DIRECT_RDMA_CAPABLE
            | Attribute::IS_HW_DECOMPRESS_CAPABLE
            | Attribute::IS_MANAGED => Short(0),
            _ => return None,
        })
    }
}

/// Notes whether copies of an allocation synchronise; false if it is not rota's. It is no reference: it orders copies with
/// a third party's, of which this memory has none. So it is enough that the program reads what it wrote.
///
/// # Safety
/// `value` is null or can be read as a number.
pub(super) unsafe fn note_sync_memops(value: *const c_void, address: CUdeviceptr) -> bool {
    if value.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller promises a number.
    let is_on = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
    session::around(address.0).is_some_and(|session| session.table().set_sync_memops(address.0, is_on))
}
