//! What the keeper answers.

use super::{BlockFact, Extent};
use crate::names::{HashSeed, Node, Process, TenantNumber};
use serde::{Deserialize, Serialize};

/// What became of one handle, or one tenant, in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Outcome {
    /// It is done.
    #[error("done")]
    Done,
    /// It was so before.
    #[error("it was so before")]
    AlreadySo,
    /// Nobody introduced this tenant.
    #[error("no such tenant was introduced")]
    UnknownTenant,
    /// Another process has this number.
    #[error("another process has that tenant's number")]
    OtherProcess,
    /// There are too many tenants.
    #[error("there are too many tenants")]
    TooManyTenants,
    /// It has no reservation: that is dropped when a worker goes.
    #[error("it has no reservation; reserve and copy again")]
    NotReserved,
    /// Its copy out was not recorded.
    #[error("its copy out was never recorded")]
    NotAway,
    /// Its bytes are in the arena: it cannot go out once more.
    #[error("it is away already")]
    IsAway,
    /// Not whole blocks, none, too many, or another number than before.
    #[error("its size is wrong: whole blocks of 2 MiB, at most 128, always the same")]
    WrongSize,
    /// Not one fact for each block; or the unwritten place of a zero block would come to count.
    #[error(
        "there must be one fact for each block, or none in a place that had none, and a block that was zero and is not has \
         another hash: cancel, reserve and copy all"
    )]
    WrongFacts,
    /// The hashes that are recorded were made with another seed.
    #[error("another seed is kept already")]
    OtherSeed,
    /// There is no cellar, or there are not all tickets.
    #[error("the cellar has not all of it, by the keeper's word")]
    NotInCellar,
    /// Another cellar is kept, or its files are not what they have to be.
    #[error("another cellar is kept already, or its files cannot be kept")]
    BadCellar,
    /// A ticket is empty or too long, or there are more blocks in the cellar than tickets can be kept of.
    #[error("the keeper cannot keep these tickets: they are malformed, or too many")]
    BadTickets,
}

/// Why there is no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// What it would take: less than all of it where its clean copy has a place.
    pub missing_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
    /// What [`super::Request::DropClean`] could make free.
    pub clean_bytes: u64,
    /// What [`super::Request::Reclaim`] could make free.
    pub orphaned_bytes: u64,
}

/// Space for one handle, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reservation {
    /// Here.
    Space {
        /// In the order in which bytes are laid into them.
        extents: Vec<Extent>,
        /// It is the place of its clean copy: blocks that have not changed since are there already, but for those that were
        /// zero ([`BlockFact::zero`]). From now on that copy counts for nothing until it is recorded again.
        reused: bool,
    },
    /// There is too little.
    NoSpace(Lack),
    /// It cannot have any.
    Refused(Outcome),
}

/// Where the valid bytes of a handle are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the arena, whatever may lie on the device.
    Away,
    /// On the device. The arena has them as they were when they came back; the tenant may have run since, so without facts to
    /// compare with the copy is worth nothing to another worker.
    Clean,
    /// In the cellar, whatever may lie elsewhere. [`super::Request::Tickets`] has the rest.
    Cellar,
}

/// A handle with bytes in the arena or the cellar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Which one of the tenant.
    pub handle: u64,
    /// How large.
    pub bytes: u64,
    /// Which bytes count.
    pub place: Place,
    /// Where they are, in order.
    pub extents: Vec<Extent>,
    /// What the worker said of them.
    pub facts: Vec<BlockFact>,
}

/// A segment of the arena; its file comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentView {
    /// Where it starts in the arena.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// The node it was put near to.
    pub node: Option<Node>,
}

/// How far the arena is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it will have.
    pub wanted_bytes: u64,
    /// What has pages behind it. The sum of the following five, less zeros.
    pub ready_bytes: u64,
    /// Nobody's.
    pub free_bytes: u64,
    /// Reserved for copies out, or for what comes from the cellar.
    pub reserved_bytes: u64,
    /// Away.
    pub away_bytes: u64,
    /// Clean copies.
    pub clean_bytes: u64,
    /// Reserved by a worker that is gone.
    pub orphaned_bytes: u64,
    /// Of what is away, so much is zero and has no place.
    pub zero_bytes: u64,
    /// In the cellar. Not a part of the arena.
    pub cellar_bytes: u64,
    /// How many segments are ready.
    pub segments: u32,
    /// More may become ready.
    pub growing: bool,
    /// Why it stays smaller than wanted.
    pub stopped: Option<String>,
}

/// What a worker learns first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`super::VERSION`] of the keeper.
    pub version: u32,
    /// The keeper, so that another one is not taken for it.
    pub keeper: Process,
    /// How many segments the arena will have.
    pub segments: u32,
    /// From one segment's offset to the next one's. The last of a part may be shorter.
    pub segment_bytes: u64,
    /// The highest number that a tenant ever had: new ones get higher ones.
    pub highest_tenant: Option<TenantNumber>,
    /// What the first worker had it keep: the seed of all hashes that are recorded. None if nobody has yet.
    pub seed: Option<HashSeed>,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another version.
    #[error("the keeper speaks version {keeper}: start it anew with the worker, once nothing is away")]
    Version {
        /// [`super::VERSION`] of the keeper.
        keeper: u32,
    },
    /// There is a worker.
    #[error("the keeper has a worker: process {pid}")]
    Busy {
        /// Its number, by the kernel's word.
        pid: u32,
    },
    /// Another user.
    #[error("the keeper belongs to another user")]
    Stranger,
    /// No message, or not one that belongs here.
    #[error("the keeper got a message that is malformed, too long or out of order")]
    OutOfOrder,
}

/// What the keeper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Hello`.
    Welcome(Welcome),
    /// The connection ends.
    Refused(Refusal),
    /// To a request about one tenant.
    Outcome(Outcome),
    /// To a request about handles: one for each, in order. Each is done by itself.
    Outcomes(Vec<Outcome>),
    /// To `Reserve`: one for each, in order. Each is done by itself.
    Reserved(Vec<Reservation>),
    /// So much space became free.
    Freed {
        /// How much.
        bytes: u64,
    },
    /// To `Progress`.
    Progress(Progress),
    /// To `Segments`: those behind the known ones, as many as fit. None means that there are no more now.
    Segments(Vec<SegmentView>),
    /// To `Tenants`. None means that there are no more.
    Tenants(Vec<(TenantNumber, Process)>),
    /// To `Recorded`. None means that there are no more.
    Recorded(Vec<Recorded>),
    /// To `Leave`.
    Left {
        /// The keeper ends now.
        ends: bool,
        /// What is away.
        away_bytes: u64,
    },
    /// To `Cellar`: whether there is one.
    Cellar {
        /// Its files come with this.
        kept: bool,
    },
    /// To `Tickets`: those from that block on, as many as fit. None means that there are no more.
    Tickets(Vec<Vec<u8>>),
}
