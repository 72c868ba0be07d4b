//! The driver library in programs of its own, with a device of its own: processes, files and sockets as they are in use.
//!
//! A test that needs a program starts this executable again, with the library preloaded and the name of a `part` to play
//! ([`parts`]). The device, `vgpud`, is another package's executable: it has to be built, and lies beside the library.

mod bench;
mod parts;

mod families;
mod life;
mod names;
mod tracker;

/// Where a part is named.
const PART: &str = "ROTA_TEST_PART";

/// Plays a part, when started for it; as a test it does nothing.
#[test]
fn part() {
    if let Ok(name) = std::env::var(PART) {
        parts::play(&name);
    }
}
