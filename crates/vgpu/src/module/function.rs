//! What can be asked of a function, and set.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use cuda::CUresult;
use cuda::types::{CUfunction, CUkernel, CUmodule};
use vgpu_messages::module::ModuleRequest;
use vgpu_messages::{Answer, FunctionId, Request};

use super::library;
use super::table::Function;
use crate::argument::Out;
use crate::guard::{Outcome, api, lock};
use crate::handle::Handle;
use crate::session::{self, ask};

/// The attributes of functions, by number: maximum of threads … cluster scheduling.
const ATTRIBUTES: c_uint = 16;

/// The function that a handle stands for: of a module, or a kernel of a library in the current context.
pub(crate) fn resolve(function: CUfunction) -> Result<(FunctionId, Arc<Function>), CUresult> {
    let session = session::current()?;
    let id = match function.id() {
        Ok(id) => id,
        Err(code) => library::function(CUkernel(function.0).id().map_err(|_| code)?)?,
    };
    Ok((id, lock(&session.modules).known(id)?))
}

/// An attribute of a function.
pub(super) fn attribute(function: FunctionId, attribute: c_uint) -> Result<c_int, CUresult> {
    if attribute >= ATTRIBUTES {
        return Err(CUresult::INVALID_VALUE);
    }
    let request = Request::Module(ModuleRequest::GetAttribute { function, attribute });
    Ok(ask!(request, Answer::Number(number) => number as c_int))
}

/// Sets an attribute of a function.
pub(super) fn set_attribute(function: FunctionId, attribute: c_uint, value: c_int) -> Outcome {
    if attribute >= ATTRIBUTES {
        return Err(CUresult::INVALID_VALUE);
    }
    session::tell(Request::Module(ModuleRequest::SetAttribute { function, attribute, value }))
}

/// Where a parameter lies.
pub(super) fn parameter(known: &Function, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Outcome {
    let (at, size) = *known.parameters.get(index).ok_or(CUresult::INVALID_VALUE)?;
    offset.check()?;
    offset.set(at as usize)?;
    bytes.offer(size as usize);
    Ok(())
}

api! {
    cuFuncGetAttribute(value: Out<c_int>, number: c_uint, function: CUfunction) {
        session::current()?;
        value.check()?;
        value.set(attribute(resolve(function)?.0, number)?)
    }

    cuFuncSetAttribute(function: CUfunction, number: c_uint, value: c_int) {
        set_attribute(resolve(function)?.0, number, value)
    }

    cuFuncSetCacheConfig(function: CUfunction, config: c_uint) {
        resolve(function)?;
        if config > 3 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint) {
        resolve(function)?;
        if config > 2 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    cuFuncGetName(name: Out<*const c_char>, function: CUfunction) {
        session::current()?;
        name.check()?;
        name.set(resolve(function)?.1.name.as_ptr())
    }

    cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) {
        session::current()?;
        module.check()?;
        module.set(CUmodule::of(resolve(function)?.1.module))
    }

    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        parameter(&resolve(function)?.1, index, offset, bytes)
    }

    cuFuncIsLoaded(state: Out<c_uint>, function: CUfunction) {
        const LOADED: c_uint = 1;
        session::current()?;
        state.check()?;
        resolve(function)?;
        state.set(LOADED)
    }

    cuFuncLoad(function: CUfunction) {
        resolve(function).map(drop)
    }
}
