//! [`Control`] by RM controls on a tenant's nvidiactl file.
//!
//! The driver accepts only the file that the client was made with, or a copy of it. Each call goes to the GPU's firmware
//! and takes 0.15 to 1.5 ms, more while the driver is busy.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::{
    BATCH_CHANNELS_MAX, ChannelSet, Command, Control, ControlError, GroupAddress, Micros, Status, Undo,
};
use crate::rm;

/// How often an interrupted call is made again before the interruption is reported.
const INTERRUPTED_MAX: usize = 1000;

/// Size of the parameters of FIFO_DISABLE_CHANNELS.
const DISABLE_BYTES: usize = 536;
const DISABLE_FLAG_OFFSET: usize = 0;
const DISABLE_COUNT_OFFSET: usize = 4;
const DISABLE_CLIENTS_OFFSET: usize = 24;
const DISABLE_CHANNELS_OFFSET: usize = 280;

/// The signature of `ioctl`, with the one argument that the driver takes.
pub type IoctlFn = fn(RawFd, c_ulong, *mut c_void) -> c_int;

/// Controls a tenant through its nvidiactl file, by an `ioctl` function `I`.
#[derive(Debug)]
pub struct RmControl<'file, I = IoctlFn> {
    file: BorrowedFd<'file>,
    ioctl: I,
}

impl<'file> RmControl<'file> {
    /// Through the C library's `ioctl`.
    pub fn new(file: BorrowedFd<'file>) -> Self {
        Self { file, ioctl: system_ioctl }
    }
}

impl<'file, I: Fn(RawFd, c_ulong, *mut c_void) -> c_int> RmControl<'file, I> {
    /// Through another `ioctl`: where the process's own is interposed, the one behind it. Like that of the C
    /// library it returns 0 or more on success, and otherwise -1 with `errno` set.
    pub fn through(file: BorrowedFd<'file>, ioctl: I) -> Self {
        Self { file, ioctl }
    }

    /// The UUID of the GPU that a subdevice is on.
    pub fn uuid(&self, client: u32, subdevice: u32) -> Result<[u8; rm::UUID_BYTES], ControlError> {
        let command = Command::Identify;
        let mut parameters = Gid { _index: 0, flags: rm::GID_BINARY, length: 0, data: [0; _] };
        let place: *mut Gid = &raw mut parameters;
        self.send_bytes(command, client, subdevice, place.cast(), rm::GID_BYTES)?;
        let Gid { length, data, .. } = parameters;
        match data.first_chunk() {
            Some(uuid) if length as usize == uuid.len() => Ok(*uuid),
            // Another kind of name than was asked for.
            _ => Err(ControlError::Refused {
                command,
                client,
                object: subdevice,
                status: Status::NotSupported,
            }),
        }
    }

    /// Sends one control; the parameters come back as the driver left them.
    fn send(
        &self,
        command: Command,
        client: u32,
        object: u32,
        parameters: &mut [u64],
    ) -> Result<(), ControlError> {
        let bytes = size_of_val(parameters);
        self.send_bytes(command, client, object, parameters.as_mut_ptr().cast(), bytes)
    }

    /// The same for parameters of any size, which the caller keeps where they are until this returns.
    fn send_bytes(
        &self,
        command: Command,
        client: u32,
        object: u32,
        parameters: *mut u8,
        parameters_bytes: usize,
    ) -> Result<(), ControlError> {
        let number = match command {
            Command::Freeze | Command::Thaw => rm::FIFO_DISABLE_CHANNELS,
            Command::SetTimeSlice => rm::GROUP_SET_TIMESLICE,
            Command::GetTimeSlice => rm::GROUP_GET_TIMESLICE,
            Command::Identify => rm::GPU_GET_GID_INFO,
        };
        let mut argument = Argument {
            client,
            object,
            command: number,
            flags: 0,
            parameters: parameters.expose_provenance() as u64,
            parameters_bytes: parameters_bytes as u32,
            // Not a success, in case a driver returns without writing it.
            status: u32::MAX,
        };
        let request = c_ulong::from(rm::request(rm::CONTROL, size_of::<Argument>()));
        let file = self.file.as_raw_fd();
        let failed = |source| ControlError::System { command, file, source };
        for _ in 0..INTERRUPTED_MAX {
            if (self.ioctl)(file, request, (&raw mut argument).cast()) >= 0 {
                return match Status::from_number(argument.status) {
                    None => Ok(()),
                    Some(status) => Err(ControlError::Refused { command, client, object, status }),
                };
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(failed(error));
            }
        }
        Err(failed(io::ErrorKind::Interrupted.into()))
    }

    fn switch(&self, command: Command, set: &ChannelSet, batch: &[u32]) -> Result<(), ControlError> {
        let mut parameters = disable_parameters(command == Command::Freeze, set.client, batch);
        self.send(command, set.client, set.subdevice, &mut parameters)
    }
}

impl<I: Fn(RawFd, c_ulong, *mut c_void) -> c_int> Control for RmControl<'_, I> {
    fn freeze(&self, set: &ChannelSet) -> Result<(), ControlError> {
        let batches: Vec<&[u32]> = set.channels.chunks(BATCH_CHANNELS_MAX).collect();
        for (index, batch) in batches.iter().enumerate() {
            let Err(error) = self.switch(Command::Freeze, set, batch) else { continue };
            // The driver may have done part of the batch that failed. Its thaw may fail for the same reason as its
            // freeze did, so that result says nothing.
            let _ = self.switch(Command::Thaw, set, batch);
            if index == 0 {
                return Err(error);
            }
            let mut undo = Undo::Done;
            for batch in &batches[..index] {
                if self.switch(Command::Thaw, set, batch).is_err() {
                    undo = Undo::Failed;
                }
            }
            let source = Box::new(error);
            return Err(ControlError::Batch { batch: index + 1, batches: batches.len(), undo, source });
        }
        Ok(())
    }

    fn thaw(&self, set: &ChannelSet) -> Result<(), ControlError> {
        let mut result = Ok(());
        for batch in set.channels.chunks(BATCH_CHANNELS_MAX) {
            let thawed = self.switch(Command::Thaw, set, batch);
            result = result.and(thawed);
        }
        result
    }

    fn set_time_slice(&self, group: GroupAddress, slice: Micros) -> Result<(), ControlError> {
        self.send(Command::SetTimeSlice, group.client, group.group, &mut [slice.0])
    }

    fn time_slice(&self, group: GroupAddress) -> Result<Micros, ControlError> {
        let mut parameters = [0];
        self.send(Command::GetTimeSlice, group.client, group.group, &mut parameters)?;
        Ok(Micros(parameters[0]))
    }
}

/// The argument of a control, as the driver lays it out.
#[repr(C)]
struct Argument {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: u64,
    parameters_bytes: u32,
    status: u32,
}

const _: () = assert!(size_of::<Argument>() == rm::CONTROL_BYTES);

/// The parameters of GPU_GET_GID_INFO; aligned, so a little larger than the driver wants.
#[repr(C, align(8))]
struct Gid {
    _index: u32,
    flags: u32,
    length: u32,
    data: [u8; rm::GID_BYTES - rm::GID_DATA_OFFSET],
}

const _: () = assert!(std::mem::offset_of!(Gid, data) == rm::GID_DATA_OFFSET);

/// The parameters of FIFO_DISABLE_CHANNELS, in 64-bit words because the driver wants them aligned.
///
/// The flag for "only scheduling" stays 0: with it, what runs goes on running.
fn disable_parameters(disable: bool, client: u32, channels: &[u32]) -> [u64; DISABLE_BYTES / 8] {
    assert!(channels.len() <= BATCH_CHANNELS_MAX, "a batch of {} channels", channels.len());
    let mut bytes = [0u8; DISABLE_BYTES];
    let mut put = |offset: usize, word: u32| bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
    put(DISABLE_FLAG_OFFSET, u32::from(disable));
    put(DISABLE_COUNT_OFFSET, channels.len() as u32);
    for (place, channel) in channels.iter().enumerate() {
        put(DISABLE_CLIENTS_OFFSET + 4 * place, client);
        put(DISABLE_CHANNELS_OFFSET + 4 * place, *channel);
    }
    let mut words = [0; DISABLE_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

/// The C library's `ioctl`, for [`RmControl::through`].
pub const SYSTEM_IOCTL: IoctlFn = system_ioctl;

fn system_ioctl(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: `send` passes an argument of the size that the request says, which points to parameters of the size
    // that it says; both live until the call returns. The type is c_ulong or c_int, by C library.
    unsafe { libc::ioctl(file, request as _, argument) }
}
