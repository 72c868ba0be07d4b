//! The driver's steps by which a program's context is put away, and brought back.
//!
//! | | threads in the driver | channels | memory |
//! |---|---|---|---|
//! | before, as paused | as they like | frozen | away |
//! | [vacate](crate::grip::Grip::vacate): only where no work of it is left | none that uses the GPU | frozen | away |
//! | the mover lets go of what it has of its memory in the host's | none that uses the GPU | frozen | away |
//! | lock | none | frozen | away |
//! | thaw, then out | none | run, without work | away |
//! | out | none | none | away |
//! | in, then unlock | none | run, without work | away |
//! | freeze | none | frozen | away |
//! | [reenter](crate::grip::Grip::reenter) | as they like | frozen | away |
//!
//! So at no instant work can reach the GPU while the memory is away: its channels are frozen, or nobody hands any over. That
//! none is left is the program's own word, by its count of what was waited for: whether the driver's lock would refuse one with
//! a kernel on the GPU was never seen, and a thaw would have that kernel run without its memory. And but for the lock no step
//! is asked for while they are: an H200's driver (580) was seen to answer neither out nor unlock then.

use crate::checkpoints::{CheckpointError, Checkpoints, LOCK_WITHIN, Standing, Step};
use crate::executor::Link;
use crate::grip::GripError;
use sched::Scope;
use std::time::{Duration, Instant};
use wire::{NotDeep, Occupant};

/// Steps from one end to the other, and a few more.
const STEPS_MAX: usize = 8;

/// How long the driver may be at a lock that nobody waits for any more.
const LOCK_OVER_WITHIN: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { LOCK_WITHIN.saturating_add(Duration::from_secs(1)) };
const LOOK_AGAIN: Duration = if cfg!(test) { Duration::from_millis(2) } else { Duration::from_millis(200) };

/// Why somebody is not where it was to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// For this reason, and it is as it was.
    Refused(Why),
    /// Nobody knows how it stands.
    Unsure(String),
}

impl Failure {
    /// In full.
    pub(super) fn why(self) -> String {
        match self {
            Failure::Refused(Why { full: why, .. }) | Failure::Unsure(why) => why,
        }
    }
}

/// Why a context stays, in short and in full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) short: NotDeep,
    pub(super) full: String,
}

impl Why {
    pub(super) fn new(short: NotDeep, full: impl Into<String>) -> Self {
        Self { short, full: full.into() }
    }
}

/// Has the mover let go of what it has of the program's memory in the host's: what the driver puts away may come back as other
/// memory. False if it cannot. What is shown after the program is out of the driver nobody takes in.
pub(super) type LetGo<'a> = &'a dyn Fn() -> bool;

/// Has a program that is frozen, and whose memory is away, give up the rest. Refused, it is as it was.
pub(super) fn send(
    checkpoints: &dyn Checkpoints,
    link: &Link,
    let_go: LetGo<'_>,
) -> Result<Standing, Failure> {
    let alone = || let_go().then_some(()).ok_or_else(|| Failure::Refused(Why::new(NotDeep::Other, CHANGING)));
    let sent = vacate(link).map_err(Failure::Refused).and_then(|()| alone());
    let sent = sent.and_then(|()| put_away(checkpoints, link));
    if let Err(Failure::Refused(_)) = sent {
        link.grip.reenter(&link.outgoing);
    }
    sent
}

/// The same for one that keeps out of the driver. Refused, it is frozen and unlocked.
fn put_away(checkpoints: &dyn Checkpoints, link: &Link) -> Result<Standing, Failure> {
    for steps_taken in 0..STEPS_MAX {
        let standing = standing_of(checkpoints, link).map_err(|failure| match failure {
            // It is not as it was.
            Failure::Refused(why) if steps_taken > 0 => Failure::Unsure(why.full),
            failure => failure,
        });
        match standing? {
            Standing::Running => lock(checkpoints, link)?,
            Standing::Locked => {
                if let Err(failure) = thaw(link).and_then(|()| take(checkpoints, link, Step::Out)) {
                    return back(checkpoints, link, failure);
                }
            }
            Standing::Out => return Ok(Standing::Out),
            Standing::Failed => return Err(Failure::Unsure(FAILED.to_owned())),
        }
    }
    Err(Failure::Unsure("the driver does not say that it is put away".to_owned()))
}

/// Locks a program that is frozen. Where the driver does not say whether it has, it is looked at until that is over.
fn lock(checkpoints: &dyn Checkpoints, link: &Link) -> Result<(), Failure> {
    let why = match take(checkpoints, link, Step::Lock) {
        Err(Failure::Unsure(why)) => why,
        done => return done,
    };
    let until = Instant::now() + LOCK_OVER_WITHIN;
    loop {
        match standing_of(checkpoints, link) {
            Ok(Standing::Locked) => return Ok(()),
            Ok(Standing::Running) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            // One that is stopped does it when it goes on.
            Ok(Standing::Running) if !is_stopped(link) => {
                return Err(Failure::Refused(Why::new(NotDeep::Driver, why)));
            }
            Ok(_) => return Err(Failure::Unsure(why)),
            Err(more) => return Err(Failure::Unsure(format!("{why}; then: {}", more.why()))),
        }
    }
}

/// One that was to go out, and was not said to be, stays: unlocked, and frozen.
fn back(checkpoints: &dyn Checkpoints, link: &Link, failure: Failure) -> Result<Standing, Failure> {
    let stays = || match standing_of(checkpoints, link)? {
        // All the same.
        Standing::Out => Ok(true),
        _ => bring_back(checkpoints, link).map(|()| false),
    };
    match stays() {
        Ok(true) => Ok(Standing::Out),
        Ok(false) => Err(Failure::Refused(match failure {
            Failure::Refused(why) => why,
            Failure::Unsure(why) => Why::new(NotDeep::Driver, why),
        })),
        Err(more) => Err(Failure::Unsure(format!("{}; then: {}", failure.why(), more.why()))),
    }
}

/// Brings a program back, and leaves it frozen. After a failure it keeps out of the driver.
pub(super) fn fetch(
    checkpoints: &dyn Checkpoints,
    link: &Link,
    let_go: LetGo<'_>,
) -> Result<Standing, Failure> {
    vacate_or_run(checkpoints, link)?;
    let_go();
    bring_back(checkpoints, link)?;
    link.grip.reenter(&link.outgoing);
    Ok(Standing::Running)
}

/// From wherever it stands to unlocked and frozen.
fn bring_back(checkpoints: &dyn Checkpoints, link: &Link) -> Result<(), Failure> {
    for _ in 0..STEPS_MAX {
        match standing_of(checkpoints, link)? {
            // Channels that are born meanwhile must run: the driver copies by them.
            Standing::Out => thaw(link).and_then(|()| take(checkpoints, link, Step::In))?,
            Standing::Locked => thaw(link).and_then(|()| take(checkpoints, link, Step::Unlock))?,
            Standing::Running => return freeze(link),
            Standing::Failed => return Err(Failure::Unsure(FAILED.to_owned())),
        }
    }
    Err(Failure::Unsure("the driver does not say that it is back".to_owned()))
}

/// How one stands that keeps out of the driver since an earlier worker. One that an earlier worker was not at any more, or not yet,
/// is frozen where its memory is away, and need not keep out.
pub(super) fn find(
    checkpoints: &dyn Checkpoints,
    link: &Link,
    let_go: LetGo<'_>,
) -> Result<Standing, Failure> {
    vacate_or_run(checkpoints, link)?;
    let_go();
    let standing = standing_of(checkpoints, link)?;
    if standing == Standing::Running {
        if !link.grip.page().resident() {
            freeze(link)?;
        }
        link.grip.reenter(&link.outgoing);
    }
    Ok(standing)
}

/// Has the program keep out of the driver; why not, if it does not.
fn vacate(link: &Link) -> Result<(), Why> {
    let stopped = || is_stopped(link).then(|| Why::new(NotDeep::Stopped, STOPPED));
    if let Some(why) = stopped() {
        return Err(why);
    }
    let vacated = link.grip.vacate(&link.outgoing);
    vacated.map_err(|cause| {
        let short = match &cause {
            GripError::Occupied(Occupant::Work) => NotDeep::Work,
            GripError::Occupied(Occupant::Foreign) => NotDeep::Shared,
            GripError::NotVacated(_) => NotDeep::Calls,
            _ => NotDeep::Other,
        };
        stopped().unwrap_or_else(|| Why::new(short, cause.to_string()))
    })
}

/// Has one keep out of the driver that may stand anywhere. One that does not, or says that its context has to stay, as it has
/// told an earlier worker: of that nothing was put away, if the driver says that it runs.
fn vacate_or_run(checkpoints: &dyn Checkpoints, link: &Link) -> Result<(), Failure> {
    vacate(link).or_else(|why| {
        let runs = || matches!(standing_of(checkpoints, link), Ok(Standing::Running));
        if why.short != NotDeep::Stopped && runs() { Ok(()) } else { Err(Failure::Unsure(why.full)) }
    })
}

/// Whether a program does nothing at all, also not what the driver asks of it.
fn is_stopped(link: &Link) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", link.process.pid)).unwrap_or_default();
    // The field behind the program's name, which may have spaces and brackets in it.
    stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with(['T', 't']))
}

/// Lets the channels of one that keeps out of the driver, and has no work, run.
fn thaw(link: &Link) -> Result<(), Failure> {
    link.grip.thaw().map(drop).map_err(|cause| Failure::Unsure(cause.to_string()))
}

fn freeze(link: &Link) -> Result<(), Failure> {
    match link.grip.freeze(Scope::All) {
        // It would run without its memory.
        Ok(0) => Err(Failure::Unsure("none of its channels is known any more".to_owned())),
        Ok(_) => Ok(()),
        Err(cause) => Err(Failure::Unsure(cause.to_string())),
    }
}

fn standing_of(checkpoints: &dyn Checkpoints, link: &Link) -> Result<Standing, Failure> {
    checkpoints.standing(link.process).map_err(|error| match error {
        // Of one that was not asked about nothing is known.
        CheckpointError::NoHelper { .. } => Failure::Unsure(error.to_string()),
        error => sorted_out(error),
    })
}

fn take(checkpoints: &dyn Checkpoints, link: &Link, step: Step) -> Result<(), Failure> {
    checkpoints.take(link.process, step).map(drop).map_err(sorted_out)
}

/// What was not answered may be done all the same.
pub(super) fn sorted_out(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::Unanswered { .. } | CheckpointError::Silent { .. } => {
            Failure::Unsure(error.to_string())
        }
        CheckpointError::NotThere | CheckpointError::Refused { .. } | CheckpointError::Unknown(_) => {
            Failure::Refused(Why::new(NotDeep::Driver, error.to_string()))
        }
        CheckpointError::Gone | CheckpointError::NoHelper { .. } => {
            Failure::Refused(Why::new(NotDeep::Other, error.to_string()))
        }
    }
}

const CHANGING: &str = "some of its memory is changing its place, and it has not answered for that";
const FAILED: &str = "the driver says that its checkpoint has failed: the program has to be ended";
/// A program does nothing at all.
pub(super) const STOPPED: &str =
    "the program is stopped (SIGSTOP, Ctrl-Z), and does nothing that the driver asks of it";

#[cfg(test)]
mod tests;
