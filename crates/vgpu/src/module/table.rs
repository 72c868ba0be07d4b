//! What this process has loaded: modules, their functions and variables, libraries and their kernels.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;

use cuda::CUresult;
use vgpu_messages::module::Entry;
use vgpu_messages::{Address, ContextId, FunctionId, ModuleId};

use super::keep_name;

/// A library, known to this process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LibraryId(pub(crate) u64);

/// A kernel of a library, known to this process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelId(pub(crate) u64);

/// Everything loaded.
#[derive(Default)]
pub(crate) struct Modules {
    modules: BTreeMap<ModuleId, Module>,
    functions: BTreeMap<FunctionId, Arc<Function>>,
    /// Libraries.
    pub(super) libraries: BTreeMap<LibraryId, Library>,
    /// Kernels of libraries.
    pub(super) kernels: BTreeMap<KernelId, Kernel>,
}

struct Module {
    context: ContextId,
    functions: Vec<FunctionId>,
    variables: Vec<(String, Address, u64)>,
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its module.
    pub(crate) module: ModuleId,
    /// Its name.
    pub(crate) name: &'static CStr,
    /// Where each parameter lies: offset and size.
    pub(crate) parameters: Vec<(u32, u32)>,
}

/// Text that is loaded into a context when a kernel of it is needed there.
pub(super) struct Library {
    pub(super) text: Arc<Vec<u8>>,
    pub(super) loaded: BTreeMap<ContextId, ModuleId>,
    pub(super) kernels: Vec<KernelId>,
}

/// A kernel of a library.
#[derive(Clone)]
pub(super) struct Kernel {
    pub(super) library: LibraryId,
    pub(super) name: &'static CStr,
}

impl Modules {
    /// Takes in a module that was loaded.
    pub(super) fn add(
        &mut self,
        module: ModuleId,
        context: ContextId,
        entries: Vec<Entry>,
        variables: Vec<(String, Address, u64)>,
    ) {
        let functions = entries.iter().map(|entry| entry.function).collect();
        self.modules.insert(module, Module { context, functions, variables });
        for entry in entries {
            let function = Function { module, name: keep_name(&entry.name), parameters: entry.parameters };
            self.functions.insert(entry.function, Arc::new(function));
        }
    }

    /// A module was unloaded.
    pub(super) fn remove(&mut self, module: ModuleId) {
        if let Some(gone) = self.modules.remove(&module) {
            for function in gone.functions {
                self.functions.remove(&function);
            }
        }
    }

    /// A context was destroyed, and its modules with it.
    pub(crate) fn forget_context(&mut self, context: ContextId) {
        let gone: Vec<ModuleId> =
            self.modules.iter().filter(|(_, module)| module.context == context).map(|(id, _)| *id).collect();
        for module in gone {
            self.remove(module);
        }
        for library in self.libraries.values_mut() {
            library.loaded.remove(&context);
        }
    }

    /// A function by its name.
    pub(super) fn function(&self, module: ModuleId, name: &CStr) -> Result<FunctionId, CUresult> {
        let functions = &self.modules.get(&module).ok_or(CUresult::INVALID_HANDLE)?.functions;
        let found =
            functions.iter().find(|id| self.functions.get(id).is_some_and(|known| known.name == name));
        found.copied().ok_or(CUresult::NOT_FOUND)
    }

    /// All functions of a module.
    pub(super) fn functions_of(&self, module: ModuleId) -> Result<Vec<FunctionId>, CUresult> {
        Ok(self.modules.get(&module).ok_or(CUresult::INVALID_HANDLE)?.functions.clone())
    }

    /// A variable by its name: where it is, and its size.
    pub(super) fn variable(&self, module: ModuleId, name: &CStr) -> Result<(Address, u64), CUresult> {
        let variables = &self.modules.get(&module).ok_or(CUresult::INVALID_HANDLE)?.variables;
        let found = variables.iter().find(|(known, _, _)| known.as_bytes() == name.to_bytes());
        found.map(|(_, address, bytes)| (*address, *bytes)).ok_or(CUresult::NOT_FOUND)
    }

    /// What is known of a function.
    pub(crate) fn known(&self, function: FunctionId) -> Result<Arc<Function>, CUresult> {
        self.functions.get(&function).cloned().ok_or(CUresult::INVALID_HANDLE)
    }
}
