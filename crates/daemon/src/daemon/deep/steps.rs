//! The driver's steps by which a program's context is put away, and brought back. See the module above for their order.

use crate::checkpoints::{CheckpointError, Checkpoints, Standing, Step};
use crate::executor::Link;
use sched::Scope;

/// Steps from one end to the other, and a few more.
const STEPS_MAX: usize = 8;

/// Why somebody is not where it was to be.
#[derive(Debug)]
pub(super) enum Failure {
    /// This was said, and it is as it was.
    Refused(String),
    /// Nobody knows how it stands.
    Unsure(String),
}

/// Has a program that is frozen, and whose memory is away, give up the rest. If that fails it is as it was.
pub(super) fn send(checkpoints: &dyn Checkpoints, link: &Link) -> Result<Standing, Failure> {
    let pid = link.who.pid;
    for steps_taken in 0..STEPS_MAX {
        let standing = standing_of(checkpoints, pid).map_err(|failure| match failure {
            // It is not as it was.
            Failure::Refused(why) if steps_taken > 0 => Failure::Unsure(why),
            failure => failure,
        });
        match standing? {
            Standing::Running => lock(checkpoints, pid)?,
            Standing::Locked => {
                let thawed = link.grip.thaw().map_err(|cause| Failure::Refused(cause.to_string()));
                if let Err(failure) = thawed.and_then(|_| take(checkpoints, pid, Step::Out)) {
                    return Err(back(checkpoints, link, failure));
                }
            }
            Standing::Out => return Ok(Standing::Out),
            Standing::Failed => return Err(Failure::Unsure(FAILED.to_owned())),
        }
    }
    Err(Failure::Unsure("the driver does not say that it is put away".to_owned()))
}

/// Locks a program that is frozen. Where the driver does not say whether it has, it is unlocked, and as it was if it says that.
fn lock(checkpoints: &dyn Checkpoints, pid: u32) -> Result<(), Failure> {
    let Err(failure) = take(checkpoints, pid, Step::Lock) else { return Ok(()) };
    let Failure::Unsure(why) = failure else { return Err(failure) };
    match unlock_if_locked(checkpoints, pid).and_then(|()| standing_of(checkpoints, pid)) {
        Ok(Standing::Running) => Err(Failure::Refused(why)),
        Ok(_) => Err(Failure::Unsure(why)),
        Err(Failure::Refused(more) | Failure::Unsure(more)) => {
            Err(Failure::Unsure(format!("{why}; then: {more}")))
        }
    }
}

/// Of one that is not locked the driver refuses this, which is all the same.
fn unlock_if_locked(checkpoints: &dyn Checkpoints, pid: u32) -> Result<(), Failure> {
    match take(checkpoints, pid, Step::Unlock) {
        Ok(()) | Err(Failure::Refused(_)) => Ok(()),
        unsure => unsure,
    }
}

/// It stays: frozen, and only then unlocked.
fn back(checkpoints: &dyn Checkpoints, link: &Link, failure: Failure) -> Failure {
    match (freeze(link).and_then(|()| take(checkpoints, link.who.pid, Step::Unlock)), failure) {
        (Ok(()), Failure::Refused(why) | Failure::Unsure(why)) => Failure::Refused(why),
        (
            Err(Failure::Refused(more) | Failure::Unsure(more)),
            Failure::Refused(why) | Failure::Unsure(why),
        ) => Failure::Unsure(format!("{why}; then: {more}")),
    }
}

/// Brings a program back, and leaves it frozen.
pub(super) fn fetch(checkpoints: &dyn Checkpoints, link: &Link) -> Result<Standing, Failure> {
    let pid = link.who.pid;
    for looks in 0..STEPS_MAX {
        match standing_of(checkpoints, pid)? {
            Standing::Out => {
                // Channels that are born meanwhile must run: the driver copies by them.
                link.grip.thaw().map_err(|cause| Failure::Unsure(cause.to_string()))?;
                take(checkpoints, pid, Step::In)?;
            }
            Standing::Locked => {
                freeze(link)?;
                take(checkpoints, pid, Step::Unlock)?;
            }
            // It was to be locked, and nobody knows whether that is over.
            Standing::Running if looks == 0 => unlock_if_locked(checkpoints, pid)?,
            Standing::Running => return Ok(Standing::Running),
            Standing::Failed => return Err(Failure::Unsure(FAILED.to_owned())),
        }
    }
    Err(Failure::Unsure("the driver does not say that it is back".to_owned()))
}

fn freeze(link: &Link) -> Result<(), Failure> {
    match link.grip.freeze(Scope::All) {
        // Unlocked, it would run without its memory.
        Ok(0) => Err(Failure::Unsure("none of its channels is known any more".to_owned())),
        Ok(_) => Ok(()),
        Err(cause) => Err(Failure::Unsure(cause.to_string())),
    }
}

pub(super) fn standing_of(checkpoints: &dyn Checkpoints, pid: u32) -> Result<Standing, Failure> {
    checkpoints.standing(pid).map_err(not_told)
}

/// How a program stands was not said.
pub(super) fn not_told(error: CheckpointError) -> Failure {
    match error {
        // Of one that was not asked about nothing is known.
        CheckpointError::NoHelper { .. } => Failure::Unsure(error.to_string()),
        error => sorted_out(error),
    }
}

fn take(checkpoints: &dyn Checkpoints, pid: u32, step: Step) -> Result<(), Failure> {
    checkpoints.take(pid, step).map_err(sorted_out)
}

pub(super) fn on_a_thread(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("deep".into()).spawn(work).map(drop)
}

/// What was not answered may be done all the same.
pub(super) fn sorted_out(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::Unanswered { .. } | CheckpointError::Silent { .. } => {
            Failure::Unsure(error.to_string())
        }
        CheckpointError::NotThere
        | CheckpointError::Refused { .. }
        | CheckpointError::Unknown(_)
        | CheckpointError::Gone
        | CheckpointError::NoHelper { .. } => Failure::Refused(error.to_string()),
    }
}

const FAILED: &str = "the driver says that its checkpoint has failed: the program has to be ended";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Who;
    use crate::grip::Grip;
    use crate::outgoing::Outgoing;
    use crate::resource_manager::ResourceManager;
    use rustix::fs::MemfdFlags;
    use sched::TenantId;
    use std::ffi::{c_int, c_ulong, c_void};
    use std::os::fd::RawFd;
    use std::sync::{Arc, Mutex};
    use wire::{ChannelGroup, Connection, FileId, SharedPage};

    /// Succeeds at everything.
    fn willing(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
        // SAFETY: the status of a control is the 32-bit word at byte 28.
        unsafe { argument.cast::<u32>().add(7).write(0) };
        0
    }

    /// A program that is frozen, and with as many channels.
    fn link(channels: Vec<u32>) -> (Link, Connection) {
        let (daemon, tenant) = Connection::pair().unwrap();
        let page = SharedPage::create(1).unwrap();
        page.raise_channel_generation();
        let grip = Grip::new(page, ResourceManager { ioctl: willing, owns: |_| true });
        let group = ChannelGroup { file: FileId(1), client: 1, subdevice: 2, group: 3, engine: 1, channels };
        let file = rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).unwrap();
        grip.report(1, vec![FileId(1)], vec![group], vec![file]).unwrap();
        grip.freeze(Scope::All).unwrap();
        let who = Who { tenant: TenantId(1), pid: 1, job: "test".into() };
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        (Link { who, domain: None, grip: Arc::new(grip), outgoing }, tenant)
    }

    /// Remembers each step, and whether the program was frozen then; refuses one.
    #[derive(Debug)]
    struct Driver {
        link: Link,
        standing: Mutex<Standing>,
        taken: Mutex<Vec<(Step, bool)>>,
        refuses: Option<Step>,
        /// It does not answer this one, and does it as soon as the next one is asked for.
        hangs: Option<Step>,
        /// After so many steps it does not say any more how the program stands.
        silent_after: usize,
    }

    impl Driver {
        fn at(link: &Link, standing: Standing, refuses: Option<Step>) -> Arc<Driver> {
            let (standing, taken) = (Mutex::new(standing), Mutex::default());
            let (hangs, silent_after) = (None, usize::MAX);
            Arc::new(Driver { link: link.clone(), standing, taken, refuses, hangs, silent_after })
        }

        fn taken(&self) -> Vec<(Step, bool)> {
            self.taken.lock().unwrap().clone()
        }
    }

    impl Checkpoints for Driver {
        fn standing(&self, _: u32) -> Result<Standing, CheckpointError> {
            if self.taken().len() >= self.silent_after {
                let call = "cuCheckpointProcessGetState";
                return Err(CheckpointError::Refused { call, code: cuda::CUresult::UNKNOWN });
            }
            Ok(*self.standing.lock().unwrap())
        }

        fn take(&self, _: u32, step: Step) -> Result<(), CheckpointError> {
            let before = self.taken().last().map(|(step, _)| *step);
            self.taken.lock().unwrap().push((step, self.link.grip.page().frozen()));
            if self.hangs == Some(step) {
                return Err(CheckpointError::Unanswered { call: step.call(), seconds: 20 });
            }
            if before == self.hangs && before == Some(Step::Lock) {
                *self.standing.lock().unwrap() = Standing::Locked;
            }
            if self.refuses == Some(step) {
                return Err(CheckpointError::Refused { call: step.call(), code: cuda::CUresult::UNKNOWN });
            }
            *self.standing.lock().unwrap() = match step {
                Step::Lock | Step::In => Standing::Locked,
                Step::Out => Standing::Out,
                Step::Unlock => Standing::Running,
            };
            Ok(())
        }
    }

    #[test]
    fn it_is_thawed_only_while_it_is_locked() {
        let (link, _tenant) = link(vec![5, 6]);
        let driver = Driver::at(&link, Standing::Running, None);
        assert!(matches!(send(driver.as_ref(), &link), Ok(Standing::Out)));
        assert_eq!(driver.taken(), [(Step::Lock, true), (Step::Out, false)]);
        assert!(matches!(fetch(driver.as_ref(), &link), Ok(Standing::Running)));
        assert_eq!(driver.taken()[2..], [(Step::In, false), (Step::Unlock, true)]);
        assert!(link.grip.page().frozen());
    }

    #[test]
    fn what_is_refused_leaves_it_frozen_and_unlocked() {
        for (refuses, steps) in [(Step::Lock, 1), (Step::Out, 3)] {
            let (link, _tenant) = link(vec![5]);
            let driver = Driver::at(&link, Standing::Running, Some(refuses));
            let sent = send(driver.as_ref(), &link);
            assert!(
                matches!(&sent, Err(Failure::Refused(why)) if why.starts_with(refuses.call())),
                "{sent:?}"
            );
            assert_eq!((driver.taken().len(), *driver.standing.lock().unwrap()), (steps, Standing::Running));
            assert!(link.grip.page().frozen(), "it would run without its memory");
        }
    }

    #[test]
    fn one_that_has_gone_some_steps_is_not_as_it_was() {
        for silent_after in [0, 1, 2] {
            let (link, _tenant) = link(vec![5]);
            let mut driver = Driver::at(&link, Standing::Running, None);
            Arc::get_mut(&mut driver).unwrap().silent_after = silent_after;
            let sent = send(driver.as_ref(), &link);
            assert_eq!(matches!(sent, Err(Failure::Unsure(_))), silent_after > 0, "{sent:?}");
        }
    }

    #[test]
    fn one_whose_lock_is_not_answered_is_unlocked_and_as_it_was() {
        let (link, _tenant) = link(vec![5]);
        let mut driver = Driver::at(&link, Standing::Running, None);
        Arc::get_mut(&mut driver).unwrap().hangs = Some(Step::Lock);
        let sent = send(driver.as_ref(), &link);
        assert!(matches!(sent, Err(Failure::Refused(_))), "{sent:?}");
        assert_eq!(driver.taken(), [(Step::Lock, true), (Step::Unlock, true)]);
        assert_eq!(*driver.standing.lock().unwrap(), Standing::Running);
    }

    #[test]
    fn one_that_answers_neither_lock_nor_unlock_is_not_taken_as_it_was_before_it_does() {
        let (link, _tenant) = link(vec![5]);
        let mut driver = Driver::at(&link, Standing::Running, None);
        Arc::get_mut(&mut driver).unwrap().hangs = Some(Step::Unlock);
        let locked = lock(&Hangs(&driver), 1);
        assert!(matches!(locked, Err(Failure::Unsure(_))), "{locked:?}");
        // It says that it runs, and may be locked the next instant.
        assert!(matches!(fetch(driver.as_ref(), &link), Err(Failure::Unsure(_))));
        Arc::get_mut(&mut driver).unwrap().hangs = None;
        assert!(matches!(fetch(driver.as_ref(), &link), Ok(Standing::Running)));
    }

    /// Answers no step.
    #[derive(Debug)]
    struct Hangs<'a>(&'a Driver);

    impl Checkpoints for Hangs<'_> {
        fn standing(&self, pid: u32) -> Result<Standing, CheckpointError> {
            self.0.standing(pid)
        }

        fn take(&self, _: u32, step: Step) -> Result<(), CheckpointError> {
            Err(CheckpointError::Unanswered { call: step.call(), seconds: 20 })
        }
    }

    #[test]
    fn what_was_left_in_the_middle_is_gone_on_with() {
        let (link, _tenant) = link(vec![5]);
        let driver = Driver::at(&link, Standing::Locked, None);
        assert!(matches!(fetch(driver.as_ref(), &link), Ok(Standing::Running)));
        assert_eq!(driver.taken(), [(Step::Unlock, true)]);
    }

    #[test]
    fn one_whose_channels_are_gone_stays_locked() {
        let (link, _tenant) = link(vec![5]);
        let driver = Driver::at(&link, Standing::Out, None);
        link.grip.report(1, vec![], vec![], vec![]).unwrap();
        assert!(matches!(fetch(driver.as_ref(), &link), Err(Failure::Unsure(_))));
        assert_eq!((driver.taken().len(), *driver.standing.lock().unwrap()), (1, Standing::Locked));
    }
}
