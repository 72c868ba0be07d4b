//! Calls from a stream back into the program: made on one thread of this library, in the order the device asks for.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use cuda::CUresult;
use cuda::types::{CUhostFn, CUstream, CUstreamCallback};
use vgpu_messages::{Callback, Reply, Request};
use wire::Connection;

use crate::guard::{Outcome, in_callback, lock};
use crate::notice::notice_once;
use crate::session::line;

/// The thread that calls back, once there is one.
#[derive(Default)]
pub(crate) struct Callbacks {
    started: Mutex<bool>,
}

impl Callbacks {
    /// Makes sure that somebody calls back. To be called before the device is given a call.
    pub(crate) fn start(&self) -> Outcome {
        let mut started = lock(&self.started);
        if *started {
            return Ok(());
        }
        let connection = serve().map_err(|error| {
            notice_once(&format!("host callbacks cannot be served: {error}"));
            CUresult::OPERATING_SYSTEM
        })?;
        let name = std::thread::Builder::new().name("vgpu-callbacks".to_owned());
        let before = block_signals();
        let spawned = name.spawn(move || run(&connection));
        restore_signals(&before);
        spawned.map_err(|_| CUresult::OPERATING_SYSTEM)?;
        *started = true;
        Ok(())
    }
}

fn serve() -> Result<Connection, line::LineError> {
    let connection = line::further()?;
    line::remember(&connection);
    connection.send(&Request::ServeCallbacks, &[])?;
    match connection.receive::<Reply>()?.0 {
        Ok(_) => Ok(connection),
        Err(refusal) => Err(line::LineError::Refused(refusal)),
    }
}

/// Ends when the device is gone.
fn run(connection: &Connection) {
    while let Ok((Callback { id, call, status }, _)) = connection.receive::<Callback>() {
        let function: *const c_void = std::ptr::with_exposed_provenance(call.function as usize);
        let data: *mut c_void = std::ptr::with_exposed_provenance_mut(call.data as usize);
        in_callback(|| match call.stream {
            // SAFETY: the program gave this function for this use, with its argument.
            None => unsafe { std::mem::transmute::<*const c_void, CUhostFn>(function)(data) },
            // SAFETY: as above.
            Some(stream) => unsafe {
                let stream = CUstream(std::ptr::without_provenance_mut(stream as usize));
                std::mem::transmute::<*const c_void, CUstreamCallback>(function)(stream, status.into(), data);
            },
        });
        if connection.send(&Request::CallbackDone(id), &[]).is_err() {
            return;
        }
    }
}

/// The program's signal handlers must not run on a thread that it does not know.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: one set is filled, the other receives the mask before; neither call fails with these values.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a mask that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
