//! A program with the library preloaded, in front of a driver in software; the test is its daemon.
//!
//! `program.c` is the program, `driver.c` the driver.

mod bench;
mod channels;
mod contexts;
mod created;
mod homes;
mod lives;
mod memory;
mod names;
mod opens;
mod passing;
mod rejoin;
mod requests;
