//! The whole system as people run it, on a virtual GPU: `rotad`, programs under `rota run`, and the virtual device, each a
//! process of its own. Programs know what every byte of theirs has to be, and check it in every step.
//!
//! - [`turns`]: programs that do not fit together take turns, long ones and short ones at random.
//! - [`ahead`]: what is brought in before a turn ends.
//! - [`clean_copies`]: what did not change is not copied out again.
//! - [`created`]: programs that create and map their memory themselves.
//! - [`deaths`]: programs and the daemon are killed at the worst moments.
//! - [`loss`]: the device is killed under them.
//! - [`arguments`]: what each program can be told.
//! - [`asked`]: nobody gets on a virtual GPU, or past it, without being told.
//! - [`jobs`]: terms of jobs, and a daemon that comes when it is needed. [`commands`]: and with which programs.
//! - [`sharing`]: memory that several processes have, and memory that cannot move.
//! - [`held`]: the same where the driver cannot freeze.
//! - [`said`]: what is said where something stands in the way. [`doctor`]: what the doctor says.
//! - [`containers`]: programs in namespaces of their own.
//! - [`memory`]: what programs see of memory, what the daemon counts, and who else is on the GPU.
//! - [`oversize`]: programs that are larger than their GPU.
//! - [`several`]: programs on several GPUs, and which GPUs a program gets. [`gang`]: kernels that wait for each other.
//! - [`shapes`]: the cases that rota is for, at a hundredth of their size or less. [`storm`]: everything goes wrong at once.
//! - [`soak`]: all of it at once, for a while. [`crowd`]: fifty programs on four GPUs that come and go.
//! - [`idleness`]: who has no work takes no turns. [`instructions`]: how little a launch costs.
//! - [`requests`]: what becomes of hints, and of requests. [`rhythm`]: requests that are foretold.
//! - [`ways`]: what each way of announcing them did, and what it cost.
//! - [`slices`]: nobody is switched to in vain beside a latency-critical program.
//! - [`sdk`]: programs that say themselves when requests come.
//! - [`passing`]: memory that goes from one program to the next.
//! - [`planted`]: bugs that were put in on purpose are found.
//! - [`patience`]: whoever waits for the GPU while it is frozen sleeps.
//! - [`drivers`]: the same programs without rota, and what the virtual GPU answers them.
//! - [`conformance`]: what the driver is known to answer, asked through rota.
//! - [`stage`]: starts the parts, and sees to it that nothing is left of them; [`parts`]: where their files are.
//!
//! The parts come from other packages, and must be built before: `cargo build --workspace`. Bugs can only be put
//! into a daemon that was built together with all tests: `cargo test --workspace --no-run`.

mod parts;
mod stage;

mod ahead;
mod arguments;
mod asked;
mod cellar;
mod clean_copies;
mod commands;
mod conformance;
mod containers;
mod created;
mod crowd;
mod deaths;
mod deep;
mod deep_memory;
mod demo;
mod doctor;
mod drivers;
mod gang;
mod handover;
mod held;
mod homes;
mod idleness;
mod instructions;
mod jobs;
mod loss;
mod memory;
mod oversize;
mod passing;
mod patience;
mod planted;
mod priorities;
mod puppet;
mod requests;
mod rhythm;
mod said;
mod sdk;
mod self_test;
mod several;
mod shapes;
mod sharing;
mod slices;
mod soak;
mod storm;
mod takeover;
mod takeover_growth;
mod takeover_names;
mod takeover_several;
mod turns;
mod warm_ups;
mod ways;
