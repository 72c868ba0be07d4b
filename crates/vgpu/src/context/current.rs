//! Each thread's stack of contexts, the top of which is current.

use std::cell::RefCell;

use cuda::CUresult;
use cuda::types::CUcontext;
use vgpu_messages::ContextId;

use super::table;
use crate::session;

thread_local! {
    static STACK: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
}

fn with<T>(work: impl FnOnce(&mut Vec<CUcontext>) -> T) -> T {
    // A thread that is ending has no contexts any more.
    let mut work = Some(work);
    let result = STACK.try_with(|stack| work.take().map(|work| work(&mut stack.borrow_mut())));
    match (result, work) {
        (Ok(Some(result)), _) => result,
        (_, Some(work)) => work(&mut Vec::new()),
        _ => unreachable!("the work was taken and its result lost"),
    }
}

/// The current one; null if there is none.
pub(crate) fn top() -> CUcontext {
    with(|stack| stack.last().copied().unwrap_or(CUcontext::NULL))
}

/// The current one; refused if there is none.
pub(crate) fn handle() -> Result<CUcontext, CUresult> {
    session::current()?;
    match top() {
        context if context.is_null() => Err(CUresult::INVALID_CONTEXT),
        context => Ok(context),
    }
}

/// The device's name of the current one; refused if there is none or it was destroyed.
pub(crate) fn id() -> Result<ContextId, CUresult> {
    table::id_of(handle()?)
}

/// Puts one on top.
pub(super) fn push(context: CUcontext) {
    with(|stack| stack.push(context));
}

/// Takes the top away; None if there is none.
pub(super) fn pop() -> Option<CUcontext> {
    with(|stack| stack.pop().filter(|context| !context.is_null()))
}

/// Takes the top away if it is this one.
pub(super) fn drop_top(context: CUcontext) {
    with(|stack| {
        stack.pop_if(|top| *top == context);
    });
}

/// Puts one in the place of the top; null only takes the top away.
pub(super) fn set(context: CUcontext) {
    with(|stack| {
        stack.pop();
        if !context.is_null() {
            stack.push(context);
        }
    });
}
