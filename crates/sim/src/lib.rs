//! A discrete-event simulator around the unchanged core of rota.
//!
//! A [`scenario::Scenario`] says which GPUs there are, what runs and what goes wrong; [`run`] lets the core decide and
//! carries its decisions out on GPUs that behave as measured ([`gpu`]); a [`record::Record`] says what came of it.

#![forbid(unsafe_code)]

pub mod baselines;
pub mod calibrate;
mod engine;
pub mod faults;
pub mod gpu;
pub mod optimum;
pub mod policy;
pub mod random;
pub mod record;
pub mod report;
pub mod scenario;
mod tally;
pub mod workload;

pub use engine::{listen, run};
