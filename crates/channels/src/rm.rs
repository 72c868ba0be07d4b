//! Numbers and layouts of the RM calls that matter here, and pure parsing of their argument bytes.
//!
//! Nothing here reads memory through a pointer or makes a call. The layouts are the same from driver 550 to 595.

/// The `type` byte of every RM ioctl request.
pub const MAGIC: u8 = b'F';
/// Number of the ioctl that frees an object and everything under it.
pub const FREE: u8 = 0x29;
/// Number of the ioctl that sends a control to an object.
pub const CONTROL: u8 = 0x2a;
/// Number of the ioctl that allocates an object.
pub const ALLOC: u8 = 0x2b;
/// Number of the ioctl that wraps another one: `{u32 number, u32 size, u64 address}`.
pub const XFER: u8 = 211;

/// Bytes of an [`FREE`] argument.
pub const FREE_BYTES: usize = 16;
/// Bytes of a [`CONTROL`] argument.
pub const CONTROL_BYTES: usize = 32;
/// Bytes of the short [`ALLOC`] argument.
pub const ALLOC_SHORT_BYTES: usize = 32;
/// Bytes of the long [`ALLOC`] argument, which also names access rights.
pub const ALLOC_LONG_BYTES: usize = 48;
/// Bytes of an [`XFER`] argument.
pub const XFER_BYTES: usize = 16;

/// Class of a device.
pub const CLASS_DEVICE: u32 = 0x80;
/// Class of a subdevice.
pub const CLASS_SUBDEVICE: u32 = 0x2080;
/// Class of a channel group.
pub const CLASS_GROUP: u32 = 0xa06c;
/// Where the engine type stands in a channel group's parameters.
pub const GROUP_ENGINE_OFFSET: usize = 12;

/// Group control: let the group's channels run (first byte: enable).
pub const GROUP_SCHEDULE: u32 = 0xa06c_0101;
/// Group control: set the time slice.
pub const GROUP_SET_TIMESLICE: u32 = 0xa06c_0103;
/// Group control: read the time slice.
pub const GROUP_GET_TIMESLICE: u32 = 0xa06c_0104;
/// Channel control: let one channel run (first byte: enable).
pub const CHANNEL_SCHEDULE: u32 = 0xa06f_0103;
/// Subdevice control: disable or enable a list of channels.
pub const FIFO_DISABLE_CHANNELS: u32 = 0x2080_110b;
/// Subdevice control: which GPU it is on, as its UUID.
pub const GPU_GET_GID_INFO: u32 = 0x2080_014a;
/// Bytes of its parameters: an index, flags, a length, and room for the UUID.
pub const GID_BYTES: usize = 268;
/// Where the flags stand.
pub const GID_FLAGS_OFFSET: usize = 4;
/// Where the length of the answer stands.
pub const GID_LENGTH_OFFSET: usize = 8;
/// Where the answer stands.
pub const GID_DATA_OFFSET: usize = 12;
/// Flags: the UUID as its 16 bytes, not as text.
pub const GID_BINARY: u32 = 2;
/// Bytes of a UUID.
pub const UUID_BYTES: usize = 16;

/// The request number of an ioctl that reads and writes `bytes` bytes of argument.
pub const fn request(number: u8, bytes: usize) -> u32 {
    0xc000_0000 | ((bytes as u32 & 0x3fff) << 16) | ((MAGIC as u32) << 8) | number as u32
}

/// Whether a request is an RM ioctl at all.
pub const fn is_rm(request: u32) -> bool {
    (request >> 8) as u8 == MAGIC
}

/// The number of a request.
pub const fn number(request: u32) -> u8 {
    request as u8
}

/// The size of a request's argument, in bytes.
pub const fn argument_bytes(request: u32) -> usize {
    (request >> 16) as usize & 0x3fff
}

/// Whether a class is that of a client, the root of its objects.
pub const fn is_client_class(class: u32) -> bool {
    matches!(class, 0x0 | 0x1 | 0x41)
}

/// Whether a class is that of a GPFIFO channel: 0xa06f, 0xb06f, … 0xc86f on Hopper.
pub const fn is_channel_class(class: u32) -> bool {
    class & 0xff == 0x6f && class >= 0xa06f && class <= 0xffff
}

/// Whether the tracker wants to know of objects of this class.
pub const fn is_tracked_class(class: u32) -> bool {
    matches!(class, CLASS_DEVICE | CLASS_SUBDEVICE | CLASS_GROUP)
        || is_client_class(class)
        || is_channel_class(class)
}

/// An RM call after it returned, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object was allocated.
    Alloc(Alloc),
    /// An object was freed, with everything under it.
    Free(Free),
    /// A control was sent to an object.
    Control(ControlCall),
}

/// The argument of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alloc {
    /// The client; for the allocation of a client itself it may be 0.
    pub client: u32,
    /// The object's parent.
    pub parent: u32,
    /// The new object; may be filled in by the driver.
    pub handle: u32,
    /// Its class.
    pub class: u32,
    /// Address of its parameters in the calling process, or 0.
    pub parameters: u64,
    /// Size of the parameters; 0 leaves it to the class.
    pub parameters_bytes: u32,
    /// 0 when the call succeeded.
    pub status: u32,
}

/// The argument of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// The client.
    pub client: u32,
    /// The object that goes; the client itself when the two are equal.
    pub handle: u32,
    /// 0 when the call succeeded.
    pub status: u32,
}

/// The argument of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlCall {
    /// The client.
    pub client: u32,
    /// The object that it is sent to.
    pub object: u32,
    /// Which control.
    pub command: u32,
    /// Address of its parameters in the calling process, or 0.
    pub parameters: u64,
    /// Size of the parameters.
    pub parameters_bytes: u32,
    /// 0 when the call succeeded.
    pub status: u32,
}

impl Operation {
    /// Decodes an argument. None when the request is another one, has an unknown size, or the bytes are too few.
    pub fn decode(request: u32, argument: &[u8]) -> Option<Self> {
        if !is_rm(request) {
            return None;
        }
        match (number(request), argument_bytes(request)) {
            (FREE, FREE_BYTES) => Some(Self::Free(Free {
                client: word(argument, 0)?,
                handle: word(argument, 8)?,
                status: word(argument, 12)?,
            })),
            (CONTROL, CONTROL_BYTES) => Some(Self::Control(ControlCall {
                client: word(argument, 0)?,
                object: word(argument, 4)?,
                command: word(argument, 8)?,
                parameters: long(argument, 16)?,
                parameters_bytes: word(argument, 24)?,
                status: word(argument, 28)?,
            })),
            (ALLOC, ALLOC_SHORT_BYTES) => alloc(argument, 24, 28),
            (ALLOC, ALLOC_LONG_BYTES) => alloc(argument, 32, 40),
            _ => None,
        }
    }

    /// The call's status; 0 when it succeeded.
    pub fn status(&self) -> u32 {
        match self {
            Self::Alloc(alloc) => alloc.status,
            Self::Free(free) => free.status,
            Self::Control(control) => control.status,
        }
    }

    /// Whether it can change what the tracker knows.
    pub fn is_tracked(&self) -> bool {
        self.status() == 0
            && match self {
                Self::Alloc(alloc) => is_tracked_class(alloc.class),
                Self::Free(_) => true,
                Self::Control(control) => {
                    matches!(control.command, GROUP_SCHEDULE | GROUP_SET_TIMESLICE | CHANNEL_SCHEDULE)
                }
            }
    }

    /// Where the parameters worth reading lie in the calling process, and how many bytes the driver has read there
    /// at least. None when they are of no interest, absent, or the call failed (then nobody has checked the address).
    pub fn parameters(&self) -> Option<(u64, usize)> {
        let (address, bytes) = match self {
            Self::Alloc(alloc) if is_tracked_class(alloc.class) => {
                let bytes = match alloc.parameters_bytes {
                    0 => class_parameter_bytes(alloc.class),
                    bytes => bytes as usize,
                };
                (alloc.parameters, bytes)
            }
            Self::Control(control) if is_known_command(control.command) => {
                (control.parameters, control.parameters_bytes as usize)
            }
            _ => return None,
        };
        (self.status() == 0 && address != 0 && bytes != 0).then_some((address, bytes))
    }
}

/// What the driver certainly read when an allocation leaves the size of its parameters to the class.
const fn class_parameter_bytes(class: u32) -> usize {
    match class {
        CLASS_GROUP => GROUP_ENGINE_OFFSET + 4,
        CLASS_DEVICE | CLASS_SUBDEVICE => 4,
        _ if is_channel_class(class) => 32,
        _ => 0,
    }
}

const fn is_known_command(command: u32) -> bool {
    matches!(
        command,
        GROUP_SCHEDULE | GROUP_SET_TIMESLICE | GROUP_GET_TIMESLICE | CHANNEL_SCHEDULE | FIFO_DISABLE_CHANNELS
    )
}

/// The two forms of an allocation differ only in where size and status stand.
fn alloc(argument: &[u8], bytes_offset: usize, status_offset: usize) -> Option<Operation> {
    Some(Operation::Alloc(Alloc {
        client: word(argument, 0)?,
        parent: word(argument, 4)?,
        handle: word(argument, 8)?,
        class: word(argument, 12)?,
        parameters: long(argument, 16)?,
        parameters_bytes: word(argument, bytes_offset)?,
        status: word(argument, status_offset)?,
    }))
}

/// The 32-bit word at `offset`, if it is there.
pub fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// The 64-bit word at `offset`, if it is there.
pub fn long(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn request_numbers_are_the_drivers() {
        assert_eq!(request(FREE, FREE_BYTES), 0xc010_4629);
        assert_eq!(request(CONTROL, CONTROL_BYTES), 0xc020_462a);
        assert_eq!(request(ALLOC, ALLOC_SHORT_BYTES), 0xc020_462b);
        assert_eq!(request(ALLOC, ALLOC_LONG_BYTES), 0xc030_462b);
    }

    #[test]
    fn both_forms_of_an_allocation_decode_alike() {
        let expected = Alloc {
            client: 1,
            parent: 2,
            handle: 3,
            class: CLASS_GROUP,
            parameters: 0x7_0000_0006,
            parameters_bytes: 32,
            status: 0x57,
        };
        let short = words(&[1, 2, 3, CLASS_GROUP, 6, 7, 32, 0x57]);
        let long = words(&[1, 2, 3, CLASS_GROUP, 6, 7, 0xaa, 0xbb, 32, 0xcc, 0x57, 0]);
        assert_eq!(Operation::decode(0xc020_462b, &short), Some(Operation::Alloc(expected)));
        assert_eq!(Operation::decode(0xc030_462b, &long), Some(Operation::Alloc(expected)));
    }

    #[test]
    fn free_and_control_decode() {
        assert_eq!(
            Operation::decode(0xc010_4629, &words(&[1, 2, 3, 4])),
            Some(Operation::Free(Free { client: 1, handle: 3, status: 4 }))
        );
        assert_eq!(
            Operation::decode(0xc020_462a, &words(&[1, 2, GROUP_SCHEDULE, 0, 8, 0, 3, 0])),
            Some(Operation::Control(ControlCall {
                client: 1,
                object: 2,
                command: GROUP_SCHEDULE,
                parameters: 8,
                parameters_bytes: 3,
                status: 0
            }))
        );
    }

    #[test]
    fn channel_classes() {
        for class in [0xa06f, 0xb06f, 0xc36f, 0xc86f, 0xca6f] {
            assert!(is_channel_class(class), "{class:#x}");
        }
        for class in [0x6f, 0x906f, 0xa06c, 0xcbc0, 0x1_c86f] {
            assert!(!is_channel_class(class), "{class:#x}");
        }
    }

    #[test]
    fn parameters_of_failed_or_foreign_calls_are_not_read() {
        let group = |status, address, bytes| {
            Operation::decode(0xc020_462b, &words(&[1, 2, 3, CLASS_GROUP, address, 0, bytes, status]))
                .unwrap()
                .parameters()
        };
        assert_eq!(group(0, 0x1000, 20), Some((0x1000, 20)));
        assert_eq!(group(0, 0x1000, 0), Some((0x1000, 16)), "the class decides when no size is given");
        assert_eq!(group(0x57, 0x1000, 20), None);
        assert_eq!(group(0, 0, 20), None);
        let memory = words(&[1, 2, 3, 0x40, 0x1000, 0, 20, 0]);
        assert_eq!(Operation::decode(0xc020_462b, &memory).unwrap().parameters(), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(request: u32, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for request in [request, 0xc010_4629, 0xc020_462a, 0xc020_462b, 0xc030_462b] {
                let decoded = Operation::decode(request, &bytes);
                if let Some(operation) = decoded {
                    prop_assert!(bytes.len() >= 16);
                    let _ = (operation.is_tracked(), operation.parameters());
                }
            }
        }
    }
}
