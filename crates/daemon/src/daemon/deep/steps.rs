//! The driver's steps by which a program's context is put away, and brought back. See the module above for their order.

use crate::checkpoints::{CheckpointError, Checkpoints, Standing, Step};
use crate::executor::Link;
use sched::Scope;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Steps from one end to the other, and a few more.
const STEPS_MAX: usize = 8;
/// How long the driver may take for one of them: seconds are usual.
const STEP_WITHIN: Duration = Duration::from_secs(20);

/// Why somebody is not where it was to be.
#[derive(Debug)]
pub(super) enum Failure {
    /// This was said, and it is as it was.
    Refused(String),
    /// Nobody knows how it stands.
    Unsure(String),
}

/// Has a program that is frozen, and whose memory is away, give up the rest. If that fails it is as it was.
pub(super) fn send(checkpoints: &Arc<dyn Checkpoints>, link: &Link) -> Result<Standing, Failure> {
    let pid = link.who.pid;
    for steps_taken in 0..STEPS_MAX {
        let standing = standing_of(checkpoints, pid).map_err(|failure| match failure {
            // It is not as it was.
            Failure::Refused(why) if steps_taken > 0 => Failure::Unsure(why),
            failure => failure,
        });
        match standing? {
            Standing::Running => take(checkpoints, pid, Step::Lock)?,
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

/// It stays: frozen, and only then unlocked.
fn back(checkpoints: &Arc<dyn Checkpoints>, link: &Link, failure: Failure) -> Failure {
    match (freeze(link).and_then(|()| take(checkpoints, link.who.pid, Step::Unlock)), failure) {
        (Ok(()), Failure::Refused(why) | Failure::Unsure(why)) => Failure::Refused(why),
        (
            Err(Failure::Refused(more) | Failure::Unsure(more)),
            Failure::Refused(why) | Failure::Unsure(why),
        ) => Failure::Unsure(format!("{why}; then: {more}")),
    }
}

/// Brings a program back, and leaves it frozen.
pub(super) fn fetch(checkpoints: &Arc<dyn Checkpoints>, link: &Link) -> Result<Standing, Failure> {
    let pid = link.who.pid;
    for _ in 0..STEPS_MAX {
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

pub(super) fn standing_of(checkpoints: &Arc<dyn Checkpoints>, pid: u32) -> Result<Standing, Failure> {
    within(checkpoints, "cuCheckpointProcessGetState", move |driver| driver.standing(pid))
}

fn take(checkpoints: &Arc<dyn Checkpoints>, pid: u32, step: Step) -> Result<(), Failure> {
    within(checkpoints, step.call(), move |driver| driver.take(pid, step))
}

pub(super) fn on_a_thread(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("deep".into()).spawn(work).map(drop)
}

/// Asks the driver on a thread that is left behind if it does not answer.
fn within<T: Send + 'static>(
    checkpoints: &Arc<dyn Checkpoints>,
    call: &str,
    ask: impl FnOnce(&dyn Checkpoints) -> Result<T, CheckpointError> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, answer) = mpsc::channel();
    let checkpoints = checkpoints.clone();
    let asked = on_a_thread(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(ask(checkpoints.as_ref()));
    });
    asked.map_err(|cause| Failure::Refused(format!("no thread can be had for {call}: {cause}")))?;
    match answer.recv_timeout(STEP_WITHIN) {
        Ok(answer) => answer.map_err(|error| Failure::Refused(error.to_string())),
        Err(_) => Err(Failure::Unsure(format!("{call} has not answered for {} s", STEP_WITHIN.as_secs()))),
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
    use std::sync::Mutex;
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
        (Link { who, grip: Arc::new(grip), outgoing }, tenant)
    }

    /// Remembers each step, and whether the program was frozen then; refuses one.
    #[derive(Debug)]
    struct Driver {
        link: Link,
        standing: Mutex<Standing>,
        taken: Mutex<Vec<(Step, bool)>>,
        refuses: Option<Step>,
        /// After so many steps it does not say any more how the program stands.
        silent_after: usize,
    }

    impl Driver {
        fn at(link: &Link, standing: Standing, refuses: Option<Step>) -> Arc<Driver> {
            let (standing, taken) = (Mutex::new(standing), Mutex::default());
            Arc::new(Driver { link: link.clone(), standing, taken, refuses, silent_after: usize::MAX })
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
            self.taken.lock().unwrap().push((step, self.link.grip.page().frozen()));
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

    fn dyn_of(driver: &Arc<Driver>) -> Arc<dyn Checkpoints> {
        driver.clone()
    }

    #[test]
    fn it_is_thawed_only_while_it_is_locked() {
        let (link, _tenant) = link(vec![5, 6]);
        let driver = Driver::at(&link, Standing::Running, None);
        assert!(matches!(send(&dyn_of(&driver), &link), Ok(Standing::Out)));
        assert_eq!(driver.taken(), [(Step::Lock, true), (Step::Out, false)]);
        assert!(matches!(fetch(&dyn_of(&driver), &link), Ok(Standing::Running)));
        assert_eq!(driver.taken()[2..], [(Step::In, false), (Step::Unlock, true)]);
        assert!(link.grip.page().frozen());
    }

    #[test]
    fn what_is_refused_leaves_it_frozen_and_unlocked() {
        for (refuses, steps) in [(Step::Lock, 1), (Step::Out, 3)] {
            let (link, _tenant) = link(vec![5]);
            let driver = Driver::at(&link, Standing::Running, Some(refuses));
            let sent = send(&dyn_of(&driver), &link);
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
            let sent = send(&dyn_of(&driver), &link);
            assert_eq!(matches!(sent, Err(Failure::Unsure(_))), silent_after > 0, "{sent:?}");
        }
    }

    #[test]
    fn what_was_left_in_the_middle_is_gone_on_with() {
        let (link, _tenant) = link(vec![5]);
        let driver = Driver::at(&link, Standing::Locked, None);
        assert!(matches!(fetch(&dyn_of(&driver), &link), Ok(Standing::Running)));
        assert_eq!(driver.taken(), [(Step::Unlock, true)]);
    }

    #[test]
    fn one_whose_channels_are_gone_stays_locked() {
        let (link, _tenant) = link(vec![5]);
        let driver = Driver::at(&link, Standing::Out, None);
        link.grip.report(1, vec![], vec![], vec![]).unwrap();
        assert!(matches!(fetch(&dyn_of(&driver), &link), Err(Failure::Unsure(_))));
        assert_eq!((driver.taken().len(), *driver.standing.lock().unwrap()), (1, Standing::Locked));
    }
}
