//! The thread that switches tenants off the GPU and back on.

use super::ahead::Ahead;
use super::{Aim, Done, Link, Order, Switch, SwitchTo, complain, span};
use crate::daemon::Input;
use crate::events::{Events, nanos};
use crate::grip::GripError;
use crate::standby::{Allowance, Crowd};
use sched::{Outcome, Scope, Slice};
use serde_json::json;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;
use wire::{be_prompt, monotonic_ns};

/// Does what it is told until nobody tells it anything any more.
pub fn run(todo: &Receiver<Order>, report: &Sender<Input>, events: &Events) {
    be_prompt();
    let (mut watch, mut ahead) = (Watch::new(), Ahead::default());
    while let Some(order) = watch.next(todo) {
        let Switch { op, link, to, aim, warms, then_by } = match order {
            Order::Switch(switch) => *switch,
            Order::StandBy(until) => {
                watch.stay(until);
                continue;
            }
        };
        let begin = Instant::now();
        let switched = match to {
            SwitchTo::Frozen(scope) => {
                freeze(&link, scope, aim, warms.as_ref().map(|hinted| (hinted, &mut ahead)), events)
            }
            SwitchTo::FrozenIfReady => freeze_rest(&link, events),
            SwitchTo::Thawed(slice) => thaw(&link, slice, events),
            SwitchTo::Sliced(slice) => give_slice(&link, slice, events),
        };
        if let SwitchTo::Thawed(_) = to {
            // What was waited for has come.
            watch.until = None;
        }
        let end = Instant::now();
        let outcome = match switched {
            true => Outcome::Done { took: span(end - begin) },
            false => Outcome::Failed,
        };
        if let Some(op) = op
            && report.send(Input::Done(Done::Action(op, outcome, end))).is_err()
        {
            return;
        }
        if let Some(until) = then_by {
            watch.stay(until);
        }
    }
}

/// Until when this thread stays awake, for what follows. What it is told meanwhile does not end that, but a thaw does.
#[derive(Debug)]
struct Watch {
    until: Option<Instant>,
    allowance: Allowance,
    crowd: Crowd,
}

impl Watch {
    fn new() -> Self {
        let (allowance, crowd) = (Allowance::of_whoever_stands_by(), Crowd::default());
        Self { until: None, allowance, crowd }
    }

    /// Something follows before then. What is too far away is not stayed awake for, as that would be over before.
    fn stay(&mut self, until: Instant) {
        let now = Instant::now();
        if self.allowance.reaches(now, until) && self.crowd.leaves_room(now) {
            self.until = self.until.max(Some(until));
        }
    }

    /// What to do next. None once nobody tells it anything any more.
    fn next(&mut self, todo: &Receiver<Order>) -> Option<Order> {
        if let Some(until) = self.until {
            match self.allowance.hear(todo, until) {
                Ok(order) => return Some(order),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.until = None,
            }
        }
        todo.recv().ok()
    }
}

fn freeze(
    link: &Link,
    scope: Scope,
    aim: Option<Aim>,
    warms: Option<(&Link, &mut Ahead)>,
    events: &Events,
) -> bool {
    let is_rest = link.grip.page().frozen();
    // Only one that was told in time to be awake launches in the middle of this.
    let awake = warms.as_ref().filter(|(hinted, _)| hinted.grip.page().warm_up_is_expected(monotonic_ns()));
    let after = awake.and_then(|(hinted, ahead)| {
        let after = ahead.after()?;
        hinted.grip.page().order_warm_up_at(monotonic_ns() + nanos(after));
        Some(after)
    });
    let begin = Instant::now();
    match link.grip.freeze(scope) {
        Ok(channels) => {
            let took = begin.elapsed();
            if let Some((hinted, ahead)) = warms {
                // Once more would be in the way of a request that is there.
                let has_begun = || hinted.grip.page().requests_open() > 0;
                match after {
                    // It may not have been awake.
                    Some(after) if !Ahead::is_lost(after, took) || has_begun() => hinted.ring_for_warm_up(),
                    _ => hinted.order_warm_up(),
                }
                ahead.learn(took);
            }
            let scope = match scope {
                Scope::Compute => "compute",
                Scope::All => "all",
            };
            let mut fields = json!({ "took_ns": nanos(took), "channels": channels, "scope": scope });
            fields["begun_ns"] = nanos(events.at(begin)).into();
            match aim {
                _ if is_rest => fields["rest"] = true.into(),
                Some(aim) => fields["aim"] = aim.fields(),
                None => {}
            }
            events.note_of(&link.who, "freeze", fields);
            true
        }
        Err(cause) => {
            if let Some((hinted, _)) = warms {
                hinted.grip.page().expect_no_warm_up();
            }
            failed("freeze", link, &cause, events)
        }
    }
}

/// Nobody waits for it, so a report that is late is no fault, and is not waited for.
fn freeze_rest(link: &Link, events: &Events) -> bool {
    let begin = Instant::now();
    match link.grip.freeze_rest_at_once() {
        Ok(channels) => {
            let mut fields = json!({ "took_ns": nanos(begin.elapsed()), "channels": channels, "scope": "all", "rest": true });
            fields["begun_ns"] = nanos(events.at(begin)).into();
            events.note_of(&link.who, "freeze", fields);
            true
        }
        Err(cause) if cause.is_for_a_report() => {
            tracing::debug!("tenant {}: the rest of it is frozen later: {cause}", link.who.tenant);
            false
        }
        Err(cause) => failed("freeze", link, &cause, events),
    }
}

fn thaw(link: &Link, slice: Slice, events: &Events) -> bool {
    if !link.grip.page().resident() {
        complain(events, &link.who, "not thawed, because not all of its memory is on the device");
        return false;
    }
    // Without its slice it runs all the same, only beside others not as it should.
    give_slice(link, slice, events);
    let begin = Instant::now();
    match link.grip.thaw() {
        Ok(channels) => {
            let fields = json!({ "took_ns": nanos(begin.elapsed()), "channels": channels });
            events.note_of(&link.who, "thaw", fields);
            true
        }
        Err(cause) => failed("thaw", link, &cause, events),
    }
}

fn give_slice(link: &Link, slice: Slice, events: &Events) -> bool {
    match link.grip.set_slice(slice) {
        Ok(0) => true,
        Ok(groups) => {
            let slice = match link.grip.slice() {
                Slice::Own => "own",
                Slice::Long => "long",
                Slice::Shortest => "shortest",
                Slice::Critical => "critical",
                Slice::Guaranteed => "guaranteed",
            };
            events.note_of(&link.who, "slice", json!({ "slice": slice, "groups": groups }));
            true
        }
        Err(cause) => failed("set the time slice", link, &cause, events),
    }
}

fn failed(what: &str, link: &Link, cause: &GripError, events: &Events) -> bool {
    match cause {
        // Its death is told elsewhere.
        GripError::Gone => {}
        cause => complain(events, &link.who, &format!("cannot {what}: {cause}")),
    }
    if let GripError::Loose(_) = cause {
        link.outgoing.hang_up();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Who;
    use crate::grip::Grip;
    use crate::outgoing::Outgoing;
    use crate::resource_manager::ResourceManager;
    use sched::{OpId, TenantId};
    use std::ffi::{c_int, c_ulong, c_void};
    use std::os::fd::RawFd;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;
    use wire::{ChannelGroup, Connection, FileId, FromDaemon, SharedPage};

    /// Succeeds at everything.
    fn willing(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
        // SAFETY: the status of a control is the 32-bit word at byte 28.
        unsafe { argument.cast::<u32>().add(7).write(0) };
        0
    }

    fn link() -> (Link, Connection) {
        let (daemon, tenant) = Connection::pair().unwrap();
        let page = SharedPage::create(1).unwrap();
        page.raise_channel_generation();
        let grip = Grip::new(page, ResourceManager { ioctl: willing, owns: |_| true });
        grip.report(1, vec![], vec![], vec![]).unwrap();
        let who = Who { tenant: TenantId(1), pid: 1, job: "test".into() };
        let outgoing = Outgoing::start(Arc::new(daemon)).unwrap();
        let process = keeper::Process::this();
        (Link { who, process, domain: None, grip: Arc::new(grip), outgoing }, tenant)
    }

    #[test]
    fn whoever_hinted_is_told_as_soon_as_the_way_is_free_and_not_otherwise() {
        let (link, _tenant) = link();
        let told = |ioctl: channels::control::IoctlFn| {
            let (hinted, service) = self::link();
            hinted.grip.page().expect_warm_up();
            let page = SharedPage::create(1).unwrap();
            page.raise_channel_generation();
            let grip = Grip::new(page, ResourceManager { ioctl, owns: |_| true });
            let file = std::fs::File::open("/dev/null").unwrap();
            let group = ChannelGroup {
                file: FileId(1),
                client: 1,
                subdevice: 2,
                group: 3,
                engine: 1,
                channels: vec![4],
            };
            grip.report(1, vec![FileId(1)], vec![group], vec![file.into()]).unwrap();
            let link = Link { grip: Arc::new(grip), ..link.clone() };
            let (switches, todo) = mpsc::channel();
            let (report, done) = mpsc::channel();
            switches.send(Order::StandBy(Instant::now() + Duration::from_secs(60))).unwrap();
            let to = SwitchTo::Frozen(Scope::Compute);
            let switch =
                Switch { op: Some(OpId(1)), link, to, aim: None, warms: Some(hinted.clone()), then_by: None };
            switches.send(Order::Switch(Box::new(switch))).unwrap();
            drop(switches);
            run(&todo, &report, &Events::begin(None).unwrap());
            assert!(matches!(done.try_recv(), Ok(Input::Done(Done::Action(OpId(1), ..)))));
            let page = hinted.grip.page();
            assert!(!page.warm_up_is_expected(wire::monotonic_ns()), "nobody is awake for it any more");
            let ordered = page.warm_ups_ordered();
            drop(hinted);
            (ordered, service.receive::<FromDaemon>().ok().map(|(message, _)| message))
        };
        assert_eq!(told(willing), (1, Some(FromDaemon::WarmUp)));
        assert_eq!(told(|_, _, _| -1), (0, None), "it was not frozen");
    }

    #[test]
    fn only_whoever_stays_awake_is_told_that_a_warm_up_is_about_to_come() {
        let (link, service) = link();
        let page = SharedPage::open(link.grip.page().file().try_clone_to_owned().unwrap()).unwrap();
        assert!(!link.expect_warm_up());
        assert!(!page.warm_up_is_expected(wire::monotonic_ns()));
        page.await_warm_ups();
        assert!(link.expect_warm_up());
        assert!(page.warm_up_is_expected(wire::monotonic_ns()));
        assert_eq!(page.warm_ups_ordered(), 0);
        link.ring_for_warm_up();
        drop(link);
        let heard = std::iter::from_fn(|| service.receive::<FromDaemon>().ok());
        assert_eq!(heard.map(|(message, _)| message).collect::<Vec<_>>(), [FromDaemon::WarmUp], "once");
    }

    #[test]
    fn a_late_report_that_nobody_waits_for_is_no_fault_and_in_nobodys_way() {
        let (link, _tenant) = link();
        link.grip.freeze(Scope::Compute).unwrap();
        link.grip.page().raise_channel_generation();
        let timeline = tempfile::NamedTempFile::new().unwrap();
        let events = Events::begin(Some(timeline.path())).unwrap();
        let (switches, todo) = mpsc::channel();
        let (report, done) = mpsc::channel();
        for (op, to) in [(1, SwitchTo::FrozenIfReady), (2, SwitchTo::Thawed(Slice::Own))] {
            let switch =
                Switch { op: Some(OpId(op)), link: link.clone(), to, aim: None, warms: None, then_by: None };
            switches.send(Order::Switch(Box::new(switch))).unwrap();
        }
        drop(switches);
        run(&todo, &report, &events);
        drop(report);
        let failed = |done| matches!(done, Input::Done(Done::Action(_, Outcome::Failed, _)));
        assert_eq!(done.iter().map(failed).collect::<Vec<_>>(), [true, false]);
        let noted = std::fs::read_to_string(timeline.path()).unwrap();
        assert!(noted.contains("thaw") && !noted.contains("error"), "{noted}");
    }

    #[test]
    fn what_it_is_told_cuts_no_watch_short_and_what_is_far_away_is_slept_for() {
        let mut watch = Watch { crowd: Crowd::of_nobody(), ..Watch::new() };
        let now = Instant::now();
        let [soon, sooner] = [900, 100].map(|us| now + Duration::from_micros(us));
        watch.stay(soon);
        assert_eq!(watch.until, Some(soon));
        watch.stay(sooner);
        watch.stay(now + Duration::from_secs(60));
        assert_eq!(watch.until, Some(soon));
        let (orders, todo) = mpsc::channel();
        orders.send(Order::StandBy(sooner)).unwrap();
        assert!(matches!(watch.next(&todo), Some(Order::StandBy(_))));
        assert_eq!(watch.until, Some(soon), "it goes on");
        drop(orders);
        assert!(watch.next(&todo).is_none());
        let mut busy = Watch { crowd: Crowd::of_many(), ..Watch::new() };
        busy.stay(Instant::now() + Duration::from_micros(500));
        assert_eq!(busy.until, None);
    }

    #[test]
    fn each_is_reported_once_in_order_and_nobody_is_thawed_whose_memory_is_away() {
        let (link, _tenant) = link();
        let (switches, todo) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let order = |op: Option<u64>, to| {
            switches
                .send(Order::Switch(Box::new(Switch {
                    op: op.map(OpId),
                    link: link.clone(),
                    to,
                    aim: None,
                    warms: None,
                    then_by: None,
                })))
                .expect("there is a queue");
        };
        order(Some(1), SwitchTo::Frozen(Scope::All));
        order(None, SwitchTo::Sliced(Slice::Own));
        order(Some(2), SwitchTo::Thawed(Slice::Own));
        link.grip.page().revoke_residency();
        drop(switches);
        run(&todo, &report, &Events::begin(None).unwrap());
        drop(report);
        let reported: Vec<(u64, bool)> = done
            .iter()
            .map(|done| match done {
                Input::Done(Done::Action(op, outcome, _)) => (op.0, outcome != Outcome::Failed),
                other => panic!("reported {other:?}"),
            })
            .collect();
        assert_eq!(reported, [(1, true), (2, false)]);
        assert!(link.grip.page().frozen());
    }
}
