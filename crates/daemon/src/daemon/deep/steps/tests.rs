use super::*;
use crate::events::Who;
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use crate::resource_manager::ResourceManager;
use keeper::Process;
use rustix::fs::MemfdFlags;
use sched::TenantId;
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use wire::{ChannelGroup, Connection, FileId, FromDaemon, Occupant, SharedPage};

/// Succeeds at everything.
fn willing(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the status of a control is the 32-bit word at byte 28.
    unsafe { argument.cast::<u32>().add(7).write(0) };
    0
}

/// A program that is frozen, and whether it keeps out of the driver.
struct Program {
    link: Link,
    is_out: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Not,
    Vacated,
    Occupied(Occupant),
}

impl Program {
    /// With one channel, in this process.
    fn new() -> Self {
        Self::of(Process::this(), Answer::Vacated)
    }

    /// One that answers so when it is to keep out of the driver.
    fn of(process: Process, answer: Answer) -> Self {
        let (daemon, tenant) = Connection::pair().unwrap();
        let page = SharedPage::create(1).unwrap();
        page.raise_channel_generation();
        page.revoke_residency();
        let grip = Arc::new(Grip::new(page, ResourceManager { ioctl: willing, owns: |_| true }));
        let channels = vec![5];
        let group = ChannelGroup { file: FileId(1), client: 1, subdevice: 2, group: 3, engine: 1, channels };
        let file = rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).unwrap();
        grip.report(1, vec![FileId(1)], vec![group], vec![file]).unwrap();
        grip.freeze(Scope::All).unwrap();
        let who = Who { tenant: TenantId(1), pid: process.pid, job: "test".into() };
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        let is_out = Arc::new(AtomicBool::new(false));
        let (heard, its) = (is_out.clone(), grip.clone());
        std::thread::spawn(move || {
            while let Ok((message, _)) = tenant.receive::<FromDaemon>() {
                heard.store(message != FromDaemon::Reenter, SeqCst);
                if let FromDaemon::Vacate { number } = message {
                    match answer {
                        Answer::Not => {}
                        Answer::Vacated => its.vacated(number, None),
                        Answer::Occupied(by) => its.vacated(number, Some(by)),
                    }
                }
            }
        });
        Self { link: Link { who, process, domain: None, grip, outgoing }, is_out }
    }

    fn is_frozen(&self) -> bool {
        self.link.grip.page().frozen()
    }

    /// Waits until it may enter the driver.
    fn reenters(&self) {
        let begin = Instant::now();
        while self.is_out.load(SeqCst) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it keeps out of the driver");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for what was said last, and has not reached it.
    fn keeps_out(&self) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(self.is_out.load(SeqCst), "it would run without its memory");
    }
}

/// Remembers each step, and whether the program was frozen then; answers none but the lock if it was.
#[derive(Debug)]
struct Driver {
    grip: Arc<Grip>,
    is_out: Arc<AtomicBool>,
    standing: Mutex<Standing>,
    taken: Mutex<Vec<(Step, bool)>>,
    refuses: Option<Step>,
    /// It does not answer this one.
    hangs: Option<Step>,
    /// And has done it all the same, after so many looks.
    done_after: Option<usize>,
    looks: Mutex<usize>,
    /// After so many steps it does not say any more how the program stands.
    silent_after: usize,
}

impl Driver {
    fn of(program: &Program, standing: Standing) -> Self {
        Self {
            grip: program.link.grip.clone(),
            is_out: program.is_out.clone(),
            standing: Mutex::new(standing),
            taken: Mutex::default(),
            refuses: None,
            hangs: None,
            done_after: None,
            looks: Mutex::default(),
            silent_after: usize::MAX,
        }
    }

    fn taken(&self) -> Vec<(Step, bool)> {
        self.taken.lock().unwrap().clone()
    }

    fn stands(&self) -> Standing {
        *self.standing.lock().unwrap()
    }
}

impl Checkpoints for Driver {
    fn standing(&self, _: Process) -> Result<Standing, CheckpointError> {
        if self.taken().len() >= self.silent_after {
            let call = "cuCheckpointProcessGetState";
            return Err(CheckpointError::Refused { call, code: cuda::CUresult::UNKNOWN });
        }
        let hung = self.taken().last().map(|(step, _)| *step).filter(|step| self.hangs == Some(*step));
        let mut looks = self.looks.lock().unwrap();
        if let Some(step) = hung {
            *looks += 1;
            if self.done_after == Some(*looks) {
                *self.standing.lock().unwrap() = after(step);
            }
        }
        Ok(self.stands())
    }

    fn take(&self, _: Process, step: Step) -> Result<Duration, CheckpointError> {
        assert!(self.is_out.load(SeqCst), "{step:?} with its threads in the driver");
        let frozen = self.grip.page().frozen();
        self.taken.lock().unwrap().push((step, frozen));
        if self.hangs == Some(step) || (frozen && step != Step::Lock) {
            return Err(CheckpointError::Unanswered { call: step.call(), seconds: 20 });
        }
        if self.refuses == Some(step) {
            return Err(CheckpointError::Refused { call: step.call(), code: cuda::CUresult::UNKNOWN });
        }
        *self.standing.lock().unwrap() = after(step);
        Ok(Duration::ZERO)
    }
}

fn after(step: Step) -> Standing {
    match step {
        Step::Lock | Step::In => Standing::Locked,
        Step::Out => Standing::Out,
        Step::Unlock => Standing::Running,
    }
}

#[test]
fn it_runs_only_while_it_keeps_out_of_the_driver() {
    let program = Program::new();
    let driver = Driver::of(&program, Standing::Running);
    assert_eq!(send(&driver, &program.link, &|| true), Ok(Standing::Out));
    assert_eq!(driver.taken(), [(Step::Lock, true), (Step::Out, false)]);
    program.keeps_out();
    assert_eq!(fetch(&driver, &program.link, &|| true), Ok(Standing::Running));
    assert_eq!(driver.taken()[2..], [(Step::In, false), (Step::Unlock, false)]);
    assert!(program.is_frozen());
    program.reenters();
}

#[test]
fn what_is_refused_leaves_it_frozen_and_unlocked() {
    for (refuses, steps) in [(Step::Lock, 1), (Step::Out, 3)] {
        let program = Program::new();
        let driver = Driver { refuses: Some(refuses), ..Driver::of(&program, Standing::Running) };
        let sent = send(&driver, &program.link, &|| true);
        assert!(
            matches!(&sent, Err(Failure::Refused(Why { short: NotDeep::Driver, full })) if full.starts_with(refuses.call())),
            "{sent:?}"
        );
        assert_eq!((driver.taken().len(), driver.stands()), (steps, Standing::Running));
        assert!(program.is_frozen(), "it would run without its memory");
        program.reenters();
    }
}

#[test]
fn one_that_does_not_leave_the_driver_is_refused_before_that_is_asked() {
    let program = Program::of(Process::this(), Answer::Not);
    let driver = Driver::of(&program, Standing::Running);
    let sent = send(&driver, &program.link, &|| true);
    assert!(
        matches!(&sent, Err(Failure::Refused(Why { short: NotDeep::Calls, full })) if full.contains("did not leave")),
        "{sent:?}"
    );
    assert_eq!(driver.taken(), []);
    program.reenters();
}

#[test]
fn one_whose_context_has_to_stay_is_refused_before_the_driver_is_asked() {
    for (by, short, why) in [
        (Occupant::Work, NotDeep::Work, "nobody has waited for"),
        (Occupant::Foreign, NotDeep::Shared, "memory of other processes"),
    ] {
        let program = Program::of(Process::this(), Answer::Occupied(by));
        let driver = Driver::of(&program, Standing::Running);
        let sent = send(&driver, &program.link, &|| panic!("nothing is let go of for it"));
        assert!(
            matches!(&sent, Err(Failure::Refused(said)) if said.short == short && said.full.contains(why)),
            "{sent:?}"
        );
        assert_eq!((driver.taken(), program.is_frozen()), (vec![], true));
        program.reenters();
    }
}

#[test]
fn one_that_had_to_stay_when_its_worker_died_goes_on() {
    let goes_on = |answer, see_to: fn(&dyn Checkpoints, &Link, LetGo<'_>) -> Result<Standing, Failure>| {
        let program = Program::of(Process::this(), answer);
        let driver = Driver::of(&program, Standing::Running);
        assert_eq!(see_to(&driver, &program.link, &|| true), Ok(Standing::Running));
        assert_eq!((driver.taken(), program.is_frozen()), (vec![], true));
        program.reenters();
        // Of another that stands in the middle nobody knows how it came there.
        let driver = Driver::of(&program, Standing::Locked);
        assert!(matches!(see_to(&driver, &program.link, &|| true), Err(Failure::Unsure(_))));
        assert_eq!(driver.taken(), []);
        program.keeps_out();
    };
    // Each waits for some seconds: all at once.
    std::thread::scope(|scope| {
        for answer in [Answer::Not, Answer::Occupied(Occupant::Work)] {
            scope.spawn(move || goes_on(answer, find));
            scope.spawn(move || goes_on(answer, fetch));
        }
    });
}

#[test]
fn memory_in_the_hosts_is_let_go_of_once_nobody_can_show_more_and_before_the_lock() {
    let program = Program::new();
    let driver = Driver::of(&program, Standing::Running);
    let let_go = || {
        assert!(program.is_out.load(SeqCst), "it could show more");
        assert_eq!(driver.taken(), [], "the driver was asked before");
        true
    };
    assert_eq!(send(&driver, &program.link, &let_go), Ok(Standing::Out));
    let driver = Driver::of(&program, Standing::Running);
    let sent = send(&driver, &program.link, &|| false);
    assert!(
        matches!(&sent, Err(Failure::Refused(why)) if why.full.contains("changing its place")),
        "{sent:?}"
    );
    assert_eq!(driver.taken(), []);
    program.reenters();
}

#[test]
fn one_that_is_stopped_is_refused_at_once() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let process = Process::find(child.id()).unwrap();
    let program = Program::of(process, Answer::Vacated);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let begin = Instant::now();
    while !is_stopped(&program.link) {
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    let driver = Driver::of(&program, Standing::Running);
    let stopped = Why::new(NotDeep::Stopped, STOPPED);
    assert_eq!(send(&driver, &program.link, &|| true), Err(Failure::Refused(stopped)));
    assert_eq!(driver.taken(), []);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn one_that_has_gone_some_steps_is_not_as_it_was() {
    for silent_after in [0, 1, 2] {
        let program = Program::new();
        let driver = Driver { silent_after, ..Driver::of(&program, Standing::Running) };
        let sent = send(&driver, &program.link, &|| true);
        assert_eq!(matches!(sent, Err(Failure::Unsure(_))), silent_after > 0, "{sent:?}");
        if silent_after > 0 {
            program.keeps_out();
        }
    }
}

#[test]
fn a_lock_that_is_not_answered_is_looked_at_until_it_is_over() {
    let program = Program::new();
    let hung = || Driver { hangs: Some(Step::Lock), ..Driver::of(&program, Standing::Running) };
    // It is given up, and the program as it was.
    let driver = hung();
    let sent = send(&driver, &program.link, &|| true);
    assert!(matches!(sent, Err(Failure::Refused(_))), "{sent:?}");
    assert_eq!((driver.taken(), program.is_frozen()), (vec![(Step::Lock, true)], true));
    program.reenters();
    // Or done after all.
    let driver = Driver { done_after: Some(2), ..hung() };
    assert_eq!(send(&driver, &program.link, &|| true), Ok(Standing::Out));
}

#[test]
fn one_that_went_out_without_a_word_is_out() {
    let program = Program::new();
    let driver =
        Driver { hangs: Some(Step::Out), done_after: Some(1), ..Driver::of(&program, Standing::Running) };
    assert_eq!(send(&driver, &program.link, &|| true), Ok(Standing::Out));
    program.keeps_out();
}

#[test]
fn what_was_left_in_the_middle_is_gone_on_with() {
    for (standing, steps) in [(Standing::Out, 2), (Standing::Locked, 1), (Standing::Running, 0)] {
        let program = Program::new();
        program.link.grip.thaw().unwrap();
        let driver = Driver::of(&program, standing);
        assert_eq!(fetch(&driver, &program.link, &|| true), Ok(Standing::Running));
        assert_eq!(driver.taken().len(), steps);
        assert!(program.is_frozen(), "it would run without its memory");
        program.reenters();
    }
}

#[test]
fn one_that_is_found_unlocked_is_frozen_and_let_go() {
    let program = Program::new();
    program.link.grip.thaw().unwrap();
    let driver = Driver::of(&program, Standing::Running);
    assert_eq!(find(&driver, &program.link, &|| true), Ok(Standing::Running));
    assert!(program.is_frozen(), "it would run without its memory");
    program.reenters();
    let driver = Driver::of(&program, Standing::Locked);
    assert_eq!(find(&driver, &program.link, &|| true), Ok(Standing::Locked));
    program.keeps_out();
}

#[test]
fn one_whose_channels_are_gone_keeps_out() {
    let program = Program::new();
    let driver = Driver::of(&program, Standing::Out);
    program.link.grip.report(1, vec![], vec![], vec![]).unwrap();
    assert!(matches!(fetch(&driver, &program.link, &|| true), Err(Failure::Unsure(_))));
    assert_eq!((driver.taken().len(), driver.stands()), (2, Standing::Running));
    program.keeps_out();
}
