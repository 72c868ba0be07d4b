//! Whole conversations on real sockets: workers that come, go, misbehave and come back.

mod adoption;
mod ends;
mod refusals;
mod world;
