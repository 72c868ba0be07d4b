//! Modules: PTX text that the device reads, and the functions in it.
//!
//! - [`table`]: what this process has loaded.
//! - [`function`]: what can be asked of a function.
//! - [`library`]: modules that belong to no context.
//! - [`occupancy`]: how many blocks fit on a multiprocessor.

pub(crate) mod function;
mod library;
mod occupancy;
pub(crate) mod table;

use std::ffi::{CStr, CString, c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUfunction, CUmodule};
use vgpu_messages::module::{Image, ModuleRequest};
use vgpu_messages::{Answer, ContextId, ModuleId, Request};

use crate::argument::{In, Out, Text, write_text};
use crate::context::current;
use crate::guard::{api, lock};
use crate::handle::Handle;
use crate::session::{self, ask};

/// The first bytes of machine code: an ELF file, and two forms of fat binaries.
const BINARY_STARTS: [[u8; 4]; 3] =
    [*b"\x7fELF", 0xba55_ed50_u32.to_le_bytes(), 0x4662_43b1_u32.to_le_bytes()];

/// Options of the compiler: buffers for its messages, and their sizes.
const OPTION_INFO_LOG: c_uint = 3;
const OPTION_INFO_LOG_BYTES: c_uint = 4;
const OPTION_ERROR_LOG: c_uint = 5;
const OPTION_ERROR_LOG_BYTES: c_uint = 6;

/// An image in the program's memory: text up to its closing zero, or machine code.
fn image(address: In<u8>) -> Result<Image, CUresult> {
    if address.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut start = [0; 4];
    for (index, place) in start.iter_mut().enumerate() {
        // Text may be shorter than four bytes; it ends with a zero.
        *place = In::<u8>::at(address.address() + index as u64).get()?;
        if *place == 0 {
            break;
        }
    }
    if BINARY_STARTS.contains(&start) {
        return Ok(Image::Binary);
    }
    // SAFETY: what is no machine code is text that ends with a zero, by the driver's interface.
    let text = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(address.address() as usize)) };
    Ok(Image::Text { address: address.address(), bytes: text.count_bytes() as u64 })
}

/// Loads an image into a context.
fn load(context: ContextId, image: Image) -> Result<ModuleId, CUresult> {
    let request = Request::Module(ModuleRequest::Load { context, image });
    let (module, entries, variables) = ask!(
        request,
        Answer::Module { module, entries, variables } => (module, entries, variables)
    );
    lock(&session::current()?.modules).add(module, context, entries, variables);
    Ok(module)
}

/// What the compiler has to say: nothing, or why it failed.
fn write_logs(
    count: c_uint,
    options: In<c_uint>,
    values: Out<u64>,
    failure: Option<CUresult>,
) -> Result<(), CUresult> {
    let options = options.list(count as usize)?;
    let why = failure.map_or_else(String::new, |code| format!("not loaded: {code}"));
    for (log, size, text) in
        [(OPTION_INFO_LOG, OPTION_INFO_LOG_BYTES, ""), (OPTION_ERROR_LOG, OPTION_ERROR_LOG_BYTES, &why)]
    {
        let place = |option| options.iter().position(|known| *known == option).map(|index| values.at(index));
        let (Some(log), Some(size)) = (place(log), place(size)) else { continue };
        // The size stands in the low half.
        let room = c_int::try_from(size.get()? & u64::from(u32::MAX)).unwrap_or(c_int::MAX);
        if room > 0 && log.get()? != 0 {
            write_text(Out::somewhere(log.get()?), room, text.as_bytes())?;
            size.set(text.len().min(room as usize - 1) as u64)?;
        }
    }
    Ok(())
}

/// A file's bytes with a closing zero.
fn read(name: Text) -> Result<Vec<u8>, CUresult> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::OsStr::from_bytes(name.get()?.to_bytes());
    let mut bytes = std::fs::read(path).map_err(|_| CUresult::FILE_NOT_FOUND)?;
    bytes.push(0);
    Ok(bytes)
}

api! {
    cuModuleLoadData, cuModuleLoadFatBinary(module: Out<CUmodule>, code: In<u8>) {
        let context = current::id()?;
        module.check()?;
        module.set(CUmodule::of(load(context, image(code)?)?))
    }

    cuModuleLoadDataEx(
        module: Out<CUmodule>,
        code: In<u8>,
        count: c_uint,
        options: In<c_uint>,
        values: Out<u64>,
    ) {
        let context = current::id()?;
        module.check()?;
        let loaded = load(context, image(code)?);
        write_logs(count, options, values, loaded.as_ref().err().copied())?;
        module.set(CUmodule::of(loaded?))
    }

    cuModuleLoad(module: Out<CUmodule>, name: Text) {
        let context = current::id()?;
        module.check()?;
        let bytes = read(name)?;
        module.set(CUmodule::of(load(context, image(In::of(&bytes[0]))?)?))
    }

    cuModuleUnload(module: CUmodule) {
        let context = current::id()?;
        let module = module.id()?;
        session::tell(Request::Module(ModuleRequest::Unload { context, module }))?;
        lock(&session::current()?.modules).remove(module);
        Ok(())
    }

    cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) {
        current::id()?;
        function.check()?;
        let name = name.get()?;
        if name.is_empty() {
            return Err(CUresult::INVALID_VALUE);
        }
        let found = lock(&session::current()?.modules).function(module.id()?, name)?;
        function.set(CUfunction::of(found))
    }

    cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) {
        session::current()?;
        count.check()?;
        count.set(lock(&session::current()?.modules).functions_of(module.id()?)?.len() as c_uint)
    }

    cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: c_uint, module: CUmodule) {
        session::current()?;
        functions.check()?;
        let found = lock(&session::current()?.modules).functions_of(module.id()?)?;
        functions.set_all(found.into_iter().take(count as usize).map(CUfunction::of));
        Ok(())
    }

    cuModuleGetGlobal_v2(address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text) {
        current::id()?;
        let name = name.get()?;
        let (at, size) = lock(&session::current()?.modules).variable(module.id()?, name)?;
        address.offer(CUdeviceptr(at.0));
        bytes.offer(size as usize);
        Ok(())
    }

    cuModuleGetLoadingMode(mode: Out<c_uint>) {
        /// At once: the device reads a module when it is loaded.
        const EAGER: c_uint = 1;
        session::current()?;
        mode.set(EAGER)
    }

    cuModuleGetTexRef, cuModuleGetSurfRef(place: Out<*mut c_void>, module: CUmodule, name: Text) {
        // Modules here have none.
        current::id()?;
        place.check()?;
        module.id()?;
        name.get()?;
        Err(CUresult::NOT_FOUND)
    }
}

/// A name that lives as long as the process, for functions that hand it out.
fn keep_name(name: &str) -> &'static CStr {
    Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str())
}
