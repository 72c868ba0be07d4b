//! The contexts of this process. A context that was destroyed stays in the table, so that it is known as that.

use std::collections::BTreeMap;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice};
use vgpu_messages::request::ContextRequest;
use vgpu_messages::{Answer, ContextId, Request};

use super::settings::Settings;
use crate::guard::{Outcome, lock};
use crate::handle::Handle;
use crate::rm::Groups;
use crate::session::{self, Session, ask};

/// A context, as this process numbers them: a primary one keeps its number when it is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContextNumber(pub(crate) u64);

/// All of them.
#[derive(Default)]
pub(crate) struct Contexts {
    records: BTreeMap<ContextNumber, Record>,
    /// The primary ones, by the program's ordinal.
    pub(super) primaries: BTreeMap<i32, super::primary::Primary>,
}

/// One context.
pub(crate) struct Record {
    /// Its device.
    pub(crate) device: CUdevice,
    /// The device's name of it; None when it was destroyed.
    pub(crate) id: Option<ContextId>,
    /// What it runs on.
    groups: Option<Groups>,
    /// The flags it was made with.
    pub(crate) flags: u32,
    /// Limits and preferences.
    pub(crate) settings: Settings,
    /// How often it was attached to.
    pub(crate) attached: u32,
    /// Whether it is a primary one.
    pub(crate) primary: bool,
}

/// Does something with a context, also a destroyed one.
pub(crate) fn with<T>(number: ContextNumber, work: impl FnOnce(&mut Record) -> T) -> Result<T, CUresult> {
    let mut contexts = lock(&session::current()?.contexts);
    contexts.records.get_mut(&number).map(work).ok_or(CUresult::INVALID_CONTEXT)
}

/// The device's name of a context that lives.
pub(crate) fn id_of(context: CUcontext) -> Result<ContextId, CUresult> {
    with(context.id()?, |record| record.id)?.ok_or(CUresult::CONTEXT_IS_DESTROYED)
}

/// The handle of a context by the device's name; null for one of another process.
pub(crate) fn handle_of(session: &Session, id: ContextId) -> CUcontext {
    let contexts = lock(&session.contexts);
    let found = contexts.records.iter().find(|(_, record)| record.id == Some(id));
    found.map_or(CUcontext::NULL, |(number, _)| CUcontext::of(*number))
}

/// Makes a context.
pub(crate) fn create(device: CUdevice, flags: u32, primary: bool) -> Result<ContextNumber, CUresult> {
    let session = session::current()?;
    session.device(device)?;
    let number = ContextNumber(session.new_number());
    let record =
        Record { device, id: None, groups: None, flags, settings: Settings::default(), attached: 0, primary };
    lock(&session.contexts).records.insert(number, record);
    if let Err(code) = bring_up(number) {
        lock(&session.contexts).records.remove(&number);
        return Err(code);
    }
    Ok(number)
}

/// Gives a context what it runs on. No lock is held meanwhile: this asks the device, and others watch how.
pub(super) fn bring_up(number: ContextNumber) -> Outcome {
    let session = session::current()?;
    let (device, flags) = with(number, |record| (record.device, record.flags))?;
    let device = session.device(device)?.device;
    let groups = session.resources.allocate(device)?;
    let request = ContextRequest::Create {
        device,
        client: groups.client,
        compute_group: groups.compute,
        copy_groups: groups.copy.clone(),
        flags,
    };
    let made = || Ok(ask!(Request::Context(request), Answer::Context(id) => id));
    match made() {
        Ok(id) => with(number, |record| {
            record.id = Some(id);
            record.groups = Some(groups);
            record.settings = Settings::default();
        }),
        Err(code) => {
            session.resources.free(&groups);
            Err(code)
        }
    }
}

/// Ends a context.
pub(super) fn destroy(number: ContextNumber) -> Outcome {
    let session = session::current()?;
    let (id, groups) = with(number, |record| (record.id.take(), record.groups.take()))?;
    let id = id.ok_or(CUresult::CONTEXT_IS_DESTROYED)?;
    lock(&session.modules).forget_context(id);
    let destroyed = session::tell(Request::Context(ContextRequest::Destroy(id)));
    if let Some(groups) = groups {
        session.resources.free(&groups);
    }
    destroyed
}
