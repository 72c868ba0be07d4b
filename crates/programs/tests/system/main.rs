//! The whole system as people run it, on a virtual GPU: `rotad`, programs under `rota run`, and the virtual device, each a
//! process of its own. Programs know what every byte of theirs has to be, and check it in every step.
//!
//! - [`turns`]: programs that do not fit together take turns, long ones and short ones at random.
//! - [`deaths`]: programs and the daemon are killed at the worst moments.
//! - [`loss`]: the device is killed under them.
//! - [`asked`]: nobody gets on a virtual GPU, or past it, without being told.
//! - [`jobs`]: terms of jobs, and a daemon that comes when it is needed.
//! - [`several`]: programs on several GPUs, and which GPUs a program gets. [`gang`]: kernels that wait for each other.
//! - [`soak`]: all of it at once, for a while. [`crowd`]: fifty programs on four GPUs that come and go.
//! - [`idleness`]: who has no work takes no turns. [`instructions`]: how little a launch costs.
//! - [`drivers`]: the same programs without rota, and what the virtual GPU answers them.
//! - [`conformance`]: what the driver is known to answer, asked through rota.
//! - [`stage`]: starts the parts, and sees to it that nothing is left of them; [`parts`]: where their files are.
//!
//! The parts come from other packages, and must be built before: `cargo build --workspace`.

mod parts;
mod stage;

mod asked;
mod conformance;
mod crowd;
mod deaths;
mod drivers;
mod gang;
mod idleness;
mod instructions;
mod jobs;
mod loss;
mod puppet;
mod several;
mod soak;
mod turns;
