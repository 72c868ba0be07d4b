//! Modules: PTX text, whose entries are run by native equivalents.

use cuda::CUresult;
use vgpu_messages::module::{Entry, Image, ModuleRequest};
use vgpu_messages::spec::UnknownKernels;
use vgpu_messages::*;

use crate::kernels::{Native, native};
use crate::machine::{Handled, Machine, refuse};
use crate::ptx::{self, PtxError};
use crate::session::ConnectionId;
use crate::space::Allocation;

/// `CUfunction_attribute`.
mod attribute {
    pub(super) const MAX_THREADS: u32 = 0;
    pub(super) const SHARED_BYTES: u32 = 1;
    pub(super) const CONST_BYTES: u32 = 2;
    pub(super) const LOCAL_BYTES: u32 = 3;
    pub(super) const REGISTERS: u32 = 4;
    pub(super) const PTX_VERSION: u32 = 5;
    pub(super) const BINARY_VERSION: u32 = 6;
    pub(super) const CACHE_MODE: u32 = 7;
    pub(super) const MAX_DYNAMIC_SHARED: u32 = 8;
    pub(super) const CARVEOUT: u32 = 9;
}

/// The most shared memory that a function can be allowed.
const SHARED_BYTES_MAX: i32 = 227 << 10;

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: ContextId,
    session: SessionId,
    /// Where its variables are.
    variables: Vec<u64>,
}

/// An entry of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: ContextId,
    session: SessionId,
    module: ModuleId,
    pub(crate) name: String,
    parameters: Vec<(u32, u32)>,
    /// Its equivalent; None: a timed no-op.
    pub(crate) native: Option<Native>,
    pub(crate) shared_bytes_max: u32,
    carveout: i32,
}

impl Function {
    /// Bytes of all its parameters.
    pub(crate) fn parameter_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |(offset, size)| (offset + size) as usize)
    }
}

impl Machine {
    pub(crate) fn module_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: ModuleRequest,
    ) -> Handled {
        match request {
            ModuleRequest::Load { context, image } => {
                self.usable(session, context)?;
                self.refuse_in_capture(connection, session)?;
                self.load(session, context, image)
            }
            ModuleRequest::Unload { context, module } => {
                self.usable(session, context)?;
                let own = self.modules.get(&module).is_some_and(|module| module.session == session);
                if !own {
                    return Err(CUresult::INVALID_HANDLE.into());
                }
                let gone = self.modules.remove(&module).expect("looked up above");
                self.functions.retain(|_, function| function.module != module);
                for address in gone.variables {
                    self.free_now(session, address)?;
                }
                Ok(Answer::Done.into())
            }
            ModuleRequest::GetAttribute { function, attribute } => {
                let function = self.functions.get(&function).filter(|it| it.session == session);
                let function = function.ok_or(CUresult::INVALID_HANDLE)?;
                let value = match attribute {
                    attribute::MAX_THREADS => 1024,
                    attribute::REGISTERS => 32,
                    attribute::PTX_VERSION => 70,
                    attribute::BINARY_VERSION => 90,
                    attribute::SHARED_BYTES | attribute::CONST_BYTES | attribute::LOCAL_BYTES => 0,
                    attribute::CACHE_MODE => 0,
                    attribute::MAX_DYNAMIC_SHARED => u64::from(function.shared_bytes_max),
                    attribute::CARVEOUT => function.carveout as u64,
                    10..=15 => 0,
                    _ => return Err(CUresult::INVALID_VALUE.into()),
                };
                Ok(Answer::Number(value).into())
            }
            ModuleRequest::SetAttribute { function, attribute, value } => {
                let function = self.functions.get_mut(&function).filter(|it| it.session == session);
                let function = function.ok_or(CUresult::INVALID_HANDLE)?;
                match attribute {
                    attribute::MAX_DYNAMIC_SHARED if (0..=SHARED_BYTES_MAX).contains(&value) => {
                        function.shared_bytes_max = value as u32;
                    }
                    attribute::CARVEOUT if (-1..=100).contains(&value) => function.carveout = value,
                    _ => return Err(CUresult::INVALID_VALUE.into()),
                }
                Ok(Answer::Done.into())
            }
        }
    }

    fn load(&mut self, session: SessionId, context: ContextId, image: Image) -> Handled {
        let no_binary = |what: &str| {
            let notice = format!("the virtual GPU runs only PTX modules of kernels it knows: {what}");
            refuse(CUresult::NO_BINARY_FOR_GPU, notice)
        };
        let (address, bytes) = match image {
            Image::Text { address, bytes } if bytes <= MODULE_BYTES_MAX => (address, bytes),
            Image::Text { .. } => return Err(CUresult::INVALID_IMAGE.into()),
            Image::Binary => return Err(no_binary("this module is machine code")),
        };
        let pid = self.sessions[&session].pid;
        let mut text = vec![0; bytes as usize];
        self.store.host.read(pid, address, &mut text).map_err(|_| CUresult::INVALID_VALUE)?;
        let text = String::from_utf8(text).map_err(|_| CUresult::INVALID_PTX)?;
        // As with the real driver, the code is all that the program is told; the log has more.
        let ptx = ptx::parse(&text).map_err(|error| {
            tracing::warn!("pid {pid}: a module cannot be loaded: {error}");
            match error {
                PtxError::NotPtx => CUresult::INVALID_IMAGE,
                PtxError::Newer(_) => CUresult::UNSUPPORTED_PTX_VERSION,
                PtxError::Malformed(_) => CUresult::INVALID_PTX,
            }
        })?;
        if self.spec.unknown_kernels == UnknownKernels::Refuse
            && let Some(unknown) = ptx.entries.iter().find(|it| native(&it.name, &it.parameters).is_none())
        {
            tracing::warn!("pid {pid}: a module with the unknown kernel `{}`", unknown.name);
            let what = format!(
                "`{}` is none of them (set unknown_kernels = \"no-op\" in vgpu.toml to run such kernels as timed \
                 no-ops, which compute nothing)",
                unknown.name
            );
            return Err(no_binary(&what));
        }
        let module = ModuleId(self.id());
        let mut variables = Vec::new();
        let device = self.contexts[&context].device;
        for variable in &ptx.variables {
            let allocation = |block| Allocation {
                asked_bytes: variable.bytes,
                block,
                device,
                context: Some(context),
                pool: None,
                freeing: false,
                opened: false,
            };
            let address = self.allocate(session, device, variable.bytes, allocation)?;
            // Variables begin as zero.
            let who = self.toucher(context, true);
            let mut memory = crate::space::touch::Touch { store: &mut self.store, who: &who };
            let _ = memory.write(address, &vec![0; variable.bytes as usize]);
            variables.push((variable.name.clone(), Address(address), variable.bytes));
        }
        let mut entries = Vec::new();
        for entry in ptx.entries {
            let function = FunctionId(self.id());
            let its = Function {
                context,
                session,
                module,
                name: entry.name.clone(),
                parameters: entry.parameters.clone(),
                native: native(&entry.name, &entry.parameters),
                shared_bytes_max: 0,
                carveout: -1,
            };
            self.functions.insert(function, its);
            entries.push(Entry { function, name: entry.name, parameters: entry.parameters });
        }
        let addresses = variables.iter().map(|(_, address, _)| address.0).collect();
        self.modules.insert(module, Module { context, session, variables: addresses });
        Ok(Answer::Module { module, entries, variables }.into())
    }
}
