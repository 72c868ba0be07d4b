//! What the shim, the daemon and the command line say to each other.
//!
//! Here live the messages ([`ToDaemon`], [`FromDaemon`]), the page that a tenant and the daemon share ([`Page`]),
//! what people ask of the daemon ([`Command`]), and the socket all of it travels on ([`Connection`]): one packet per
//! message, files attached to the message they belong to. No decisions are made here, and nothing here knows about CUDA.
//!
//! The bytes are fixed by golden tests. A change of meaning raises [`VERSION`]; the daemon refuses another version
//! by name instead of guessing.

mod command;
mod hints;
mod ids;
mod latencies;
mod listing;
mod message;
mod oversize;
mod page;
mod peer;
mod place;
mod promptness;
pub mod quantity;
mod shim_file;
mod socket;
mod statistics;
mod terms;
mod view;

pub use command::{Answer, Command, GpuChoice, JobRequest, Opened};
pub use hints::{HintSource, Hints};
pub use ids::{FileId, GrantId, HandleId, TenantId, Token};
pub use latencies::Latencies;
pub use listing::{Gpu, Listing, NotBack, NotDeep, SCHEMA_VERSION, Tenant, TenantState, Unmanaged};
pub use message::{ChannelGroup, FromDaemon, Home, Occupant, Question, SharedGpu, SizedHandle, ToDaemon};
pub use oversize::Oversize;
pub use page::{
    IDLE_SINCE_OFFSET, PHASE_NAME_BYTES, Page, PageError, SharedPage, WARM_UP_WAITED_FOR_NS, monotonic_ns,
};
pub use peer::WatchedPeer;
pub use place::{default_socket, find_socket};
pub use promptness::{be_prompt, be_prompt_as_guest, may_stay_awake, may_stay_awake_as_guest};
pub use shim_file::{ShimError, find_nvml_shim, find_shim, preload, preload_nvml};
pub use socket::{Connection, Listener, WireError};
pub use statistics::{RequestTimes, Statistics, Times};
pub use terms::{Change, Class, OVERSIZE_ALL, Priority, Terms};
pub use view::{
    Description, GpuView, JobMemory, JobView, LcMode, MemoryOnGpu, ProcessOnGpu, SelfTest, Setting, Status,
    TenantView,
};

/// Version of the messages and of the shared page. Both sides must agree.
pub const VERSION: u32 = 11;

/// The most bytes one message may have. A longer one ends its connection.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The most files one message may carry.
pub const FILES_MAX: usize = 64;

/// The most handles one message may name, so that each can bring its file along.
pub const HANDLES_MAX: usize = FILES_MAX;

/// The unit of allocation on the device: every handle is a multiple of it.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// The least handle that goes from one tenant to the next (`Take`): smaller ones are made faster.
pub const PASS_BYTES_MIN: u64 = 32 << 20;

/// The largest handle. What moves is moved in whole handles, so large memory is made of several: the last one to go takes little
/// with it that could have stayed.
pub const HANDLE_BYTES_MAX: u64 = 256 << 20;

/// The largest handle of plain allocations: in a switch both ways at once, copies in begin when the first handle is out, and go
/// on when the last one is. Far smaller ones would cost more files and mapping than they save. What programs create themselves
/// has larger ones: only one handle can be shared, and none of it is passed on.
pub const PART_BYTES_MAX: u64 = 128 << 20;
