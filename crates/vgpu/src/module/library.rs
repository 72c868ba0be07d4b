//! Libraries: modules that belong to no context. A library is loaded into a context when one of its kernels is needed there.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cuda::CUresult;
use cuda::types::{CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule};
use vgpu_messages::module::{Image, ModuleRequest};
use vgpu_messages::{FunctionId, ModuleId, Request};

use super::table::{Kernel, KernelId, Library, LibraryId};
use super::{function, image, keep_name, load, read};
use crate::argument::{In, Out, Text};
use crate::context::current;
use crate::guard::{Outcome, api, lock};
use crate::handle::Handle;
use crate::session;

/// The names after `.entry` in a text.
fn entries(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let is_name = |char: char| char.is_ascii_alphanumeric() || "_$%".contains(char);
    let names = text.split(".entry").skip(1).map(str::trim_start);
    names
        .map(|rest| rest.split(|char| !is_name(char)).next().unwrap_or("").to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

fn add(library: Out<CUlibrary>, mut text: Vec<u8>) -> Outcome {
    let session = session::current()?;
    // The closing zero, for whoever reads it as text again.
    if text.last() != Some(&0) {
        text.push(0);
    }
    let id = LibraryId(session.new_number());
    let names = entries(&text);
    if names.is_empty() {
        return Err(CUresult::INVALID_IMAGE);
    }
    let kernels: Vec<(KernelId, Kernel)> = names
        .iter()
        .map(|name| (KernelId(session.new_number()), Kernel { library: id, name: keep_name(name) }))
        .collect();
    let record = Library {
        text: Arc::new(text),
        loaded: BTreeMap::new(),
        kernels: kernels.iter().map(|(kernel, _)| *kernel).collect(),
    };
    {
        let mut modules = lock(&session.modules);
        modules.kernels.extend(kernels);
        modules.libraries.insert(id, record);
    }
    // What is wrong with it shows at once where there is a context to load it into.
    if current::id().is_ok()
        && let Err(code) = module_of(id)
    {
        forget(id)?;
        return Err(code);
    }
    library.set(CUlibrary::of(id))
}

fn forget(id: LibraryId) -> Result<Library, CUresult> {
    let mut modules = lock(&session::current()?.modules);
    let library = modules.libraries.remove(&id).ok_or(CUresult::INVALID_HANDLE)?;
    for kernel in &library.kernels {
        modules.kernels.remove(kernel);
    }
    Ok(library)
}

/// The library's module in the current context.
fn module_of(id: LibraryId) -> Result<ModuleId, CUresult> {
    let context = current::id()?;
    let session = session::current()?;
    let text = {
        let modules = lock(&session.modules);
        let library = modules.libraries.get(&id).ok_or(CUresult::INVALID_HANDLE)?;
        if let Some(module) = library.loaded.get(&context) {
            return Ok(*module);
        }
        library.text.clone()
    };
    let image =
        Image::Text { address: text.as_ptr().expose_provenance() as u64, bytes: text.len() as u64 - 1 };
    let module = load(context, image)?;
    if let Some(library) = lock(&session.modules).libraries.get_mut(&id) {
        library.loaded.insert(context, module);
    }
    Ok(module)
}

fn kernel(id: KernelId) -> Result<Kernel, CUresult> {
    lock(&session::current()?.modules).kernels.get(&id).cloned().ok_or(CUresult::INVALID_HANDLE)
}

/// The kernel's function in the current context.
pub(super) fn function(id: KernelId) -> Result<FunctionId, CUresult> {
    let kernel = kernel(id)?;
    let module = module_of(kernel.library)?;
    lock(&session::current()?.modules).function(module, kernel.name)
}

api! {
    cuLibraryLoadData(
        library: Out<CUlibrary>,
        code: In<u8>,
        _jit_options: In<c_uint>,
        _jit_values: In<u64>,
        _jit_count: c_uint,
        _options: In<c_uint>,
        _values: In<u64>,
        _count: c_uint,
    ) {
        session::current()?;
        library.check()?;
        match image(code)? {
            Image::Text { bytes, .. } => add(library, code.list(bytes as usize + 1)?),
            Image::Binary => {
                // The device has the words for it.
                let context = current::id()?;
                load(context, Image::Binary).and(Err(CUresult::NO_BINARY_FOR_GPU))
            }
        }
    }

    cuLibraryLoadFromFile(
        library: Out<CUlibrary>,
        name: Text,
        _jit_options: In<c_uint>,
        _jit_values: In<u64>,
        _jit_count: c_uint,
        _options: In<c_uint>,
        _values: In<u64>,
        _count: c_uint,
    ) {
        session::current()?;
        library.check()?;
        add(library, read(name)?)
    }

    cuLibraryUnload(library: CUlibrary) {
        session::current()?;
        for (context, module) in forget(library.id()?)?.loaded {
            session::tell(Request::Module(ModuleRequest::Unload { context, module }))?;
            lock(&session::current()?.modules).remove(module);
        }
        Ok(())
    }

    cuLibraryGetKernel(place: Out<CUkernel>, library: CUlibrary, name: Text) {
        let session = session::current()?;
        place.check()?;
        let name = name.get()?;
        let modules = lock(&session.modules);
        let known = modules.libraries.get(&library.id()?).ok_or(CUresult::INVALID_HANDLE)?;
        let found = known.kernels.iter().find(|id| modules.kernels.get(id).is_some_and(|one| one.name == name));
        place.set(CUkernel::of(*found.ok_or(CUresult::NOT_FOUND)?))
    }

    cuLibraryGetKernelCount(count: Out<c_uint>, library: CUlibrary) {
        let session = session::current()?;
        count.check()?;
        let modules = lock(&session.modules);
        let known = modules.libraries.get(&library.id()?).ok_or(CUresult::INVALID_HANDLE)?;
        count.set(known.kernels.len() as c_uint)
    }

    cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: c_uint, library: CUlibrary) {
        let session = session::current()?;
        kernels.check()?;
        let modules = lock(&session.modules);
        let known = modules.libraries.get(&library.id()?).ok_or(CUresult::INVALID_HANDLE)?;
        kernels.set_all(known.kernels.iter().take(count as usize).map(|id| CUkernel::of(*id)));
        Ok(())
    }

    cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) {
        session::current()?;
        module.check()?;
        module.set(CUmodule::of(module_of(library.id()?)?))
    }

    cuLibraryGetGlobal(address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text) {
        let session = session::current()?;
        let name = name.get()?;
        let module = module_of(library.id()?)?;
        let (at, size) = lock(&session.modules).variable(module, name)?;
        address.offer(CUdeviceptr(at.0));
        bytes.offer(size as usize);
        Ok(())
    }

    cuLibraryGetManaged(_address: Out<CUdeviceptr>, _bytes: Out<usize>, library: CUlibrary, name: Text) {
        // Modules here have no managed variables.
        session::current()?;
        library.id()?;
        name.get()?;
        Err(CUresult::NOT_FOUND)
    }

    cuLibraryGetUnifiedFunction(_place: Out<*mut c_void>, library: CUlibrary, name: Text) {
        // Nor functions for host and device.
        session::current()?;
        library.id()?;
        name.get()?;
        Err(CUresult::NOT_FOUND)
    }

    cuKernelGetFunction(place: Out<CUfunction>, kernel: CUkernel) {
        session::current()?;
        place.check()?;
        place.set(CUfunction::of(function(kernel.id()?)?))
    }

    cuKernelGetLibrary(library: Out<CUlibrary>, of: CUkernel) {
        session::current()?;
        library.check()?;
        library.set(CUlibrary::of(kernel(of.id()?)?.library))
    }

    cuKernelGetName(name: Out<*const c_char>, of: CUkernel) {
        session::current()?;
        name.check()?;
        name.set(kernel(of.id()?)?.name.as_ptr())
    }

    cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        let id = function(kernel.id()?)?;
        let known = lock(&session::current()?.modules).known(id)?;
        function::parameter(&known, index, offset, bytes)
    }

    cuKernelGetAttribute(value: Out<c_int>, number: c_uint, kernel: CUkernel, device: CUdevice) {
        session::current()?.device(device)?;
        value.check()?;
        value.set(function::attribute(function(kernel.id()?)?, number)?)
    }

    cuKernelSetAttribute(number: c_uint, value: c_int, kernel: CUkernel, device: CUdevice) {
        session::current()?.device(device)?;
        function::set_attribute(function(kernel.id()?)?, number, value)
    }

    cuKernelSetCacheConfig(of: CUkernel, config: c_uint, device: CUdevice) {
        session::current()?.device(device)?;
        kernel(of.id()?)?;
        if config > 3 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_word() {
        let text = b".visible .entry one(\n .param .u64 a) { } .entry\ttwo_$3 (";
        assert_eq!(entries(text), ["one", "two_$3"]);
        assert!(entries(b".func x()").is_empty());
    }
}
