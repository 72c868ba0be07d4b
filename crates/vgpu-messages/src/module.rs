//! Modules: PTX text, of which the device knows the entries by name.

use serde::{Deserialize, Serialize};

use crate::ids::*;

/// Requests about modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleRequest {
    /// Loads a module. Answered by [`Module`](crate::Answer::Module).
    Load {
        /// In which context.
        context: ContextId,
        /// What.
        image: Image,
    },
    /// Ends one.
    Unload {
        /// The current context.
        context: ContextId,
        /// Which.
        module: ModuleId,
    },
    /// `cuFuncGetAttribute`. Answered by [`Number`](crate::Answer::Number).
    GetAttribute {
        /// Of which.
        function: FunctionId,
        /// `CUfunction_attribute`.
        attribute: u32,
    },
    /// `cuFuncSetAttribute`.
    SetAttribute {
        /// Of which.
        function: FunctionId,
        /// `CUfunction_attribute`.
        attribute: u32,
        /// The value.
        value: i32,
    },
}

/// What a program gave to be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    /// PTX text in the process's memory: the device reads it there. Without the closing zero byte.
    Text {
        /// Where.
        address: u64,
        /// How long.
        bytes: u64,
    },
    /// Machine code (an ELF file, a fat binary): never understood.
    Binary,
}

/// An entry of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// To be named at launch.
    pub function: FunctionId,
    /// Its name.
    pub name: String,
    /// Where each parameter lies: offset and size in bytes.
    pub parameters: Vec<(u32, u32)>,
}
