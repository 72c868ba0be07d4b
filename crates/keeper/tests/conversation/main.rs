//! Whole conversations on real sockets: workers that come, go, misbehave and come back.

mod accidents;
mod adoption;
mod ends;
mod process;
mod refusals;
mod world;
