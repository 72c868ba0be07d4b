//! The pure core of rota: who runs when, and whose memory is where.
//!
//! [`Core::step`] takes the time and an [`Event`] and returns [`Action`]s. No clock, no I/O, no threads, no randomness,
//! no floating point in decisions: the same events give the same actions on every machine. Whoever drives the core (the
//! daemon, the simulator, the model checker) executes the actions and reports their completion as events.

#![forbid(unsafe_code)]

mod action;
mod core;
mod event;
mod gpu;
mod guarantee;
mod habits;
mod hints;
mod homes;
mod host;
mod ids;
mod job;
mod lead;
mod load;
mod pauses;
mod placement;
mod policies;
mod pressure;
mod release;
mod rhythm;
mod settings;
mod tenant;
mod units;
mod view;
mod way;

pub use action::{Action, Missed, Scope, Short, Slice};
pub use core::{Core, Hindrance, NUMBER_MAX};
pub use event::{Class, Event, GpuSpec, Outcome, Priority, Survivor, SurvivorPlace, Terms, WhenFull};
pub use hints::HintCounts;
pub use homes::Sighting;
pub use ids::{GpuId, HandleId, JobId, OpId, Owned, RequestId, TenantId, TicketId, UserId};
pub use rhythm::Rhythm;
pub use settings::{Costs, Deadlines, Favour, PolicyKind, Settings};
pub use units::{Bytes, Ratio, Span, Time};
pub use view::{Described, GpuView, Outlook, State};
