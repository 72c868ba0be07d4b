//! Time: carrying all engines from instant to instant, and what is due in between.
//!
//! Steps are short for the CPU's sake (a mebibyte or so of work), exact in device time, and never go past an instant at which
//! something changes. A device whose CPU cannot keep up is late, never wrong.

use vgpu_messages::quantity::Nanos;
use vgpu_messages::{ContextId, SessionId};

use super::{Machine, Then};
use crate::engine::Ended;
use crate::item::Job;
use crate::session::ConnectionId;
use crate::space::touch::Fault;

/// Nobody who waits for a value looks less often than this.
const POLL: Nanos = Nanos(100_000);
/// The longest step while anything runs: bytes move as time passes, not at the end.
const STEP_MAX: Nanos = Nanos(1_000_000);

/// Something that happens at an instant.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) at: Nanos,
    pub(super) due: Due,
}

#[derive(Debug)]
pub(super) enum Due {
    /// A request's answer.
    Reply(ConnectionId, Then),
    /// What is left of a process is given back.
    Teardown(SessionId),
}

impl Machine {
    /// When something happens by itself; None while nothing can.
    pub fn next(&self) -> Option<Nanos> {
        let engines = self.gpus.iter().flat_map(|gpu| [gpu.compute.next(self.now), gpu.bus.next(self.now)]);
        let timers = self.timers.iter().map(|timer| Some(timer.at));
        let polls = std::iter::once((!self.polled.is_empty()).then(|| self.now + POLL));
        engines.chain(timers).chain(polls).flatten().min()
    }

    /// One step towards `target`. True if it was reached: otherwise there is more to do, and other things may be looked at
    /// first.
    pub fn advance(&mut self, target: Nanos) -> bool {
        let Some(next) = self.next() else {
            self.pass(target);
            return true;
        };
        let busy = self
            .gpus
            .iter()
            .any(|gpu| gpu.compute.next(self.now).is_some() || gpu.bus.next(self.now).is_some());
        let longest = if busy { self.now + STEP_MAX } else { target };
        let to = target.min(next).min(longest).max(self.now);
        self.carry(to);
        self.pump();
        to >= target
    }

    /// Steps until `target` is reached.
    pub fn advance_all(&mut self, target: Nanos) {
        while !self.advance(target) {}
    }

    fn pass(&mut self, to: Nanos) {
        let from = self.now;
        self.now = to.max(from);
        for gpu in &mut self.gpus {
            gpu.meter.pass(self.now, gpu.compute.busy(None), gpu.bus.busy());
        }
    }

    fn carry(&mut self, to: Nanos) {
        let mut ended = Vec::new();
        for gpu in &mut self.gpus {
            gpu.compute.carry(self.now, to, &mut self.store, &mut ended);
            gpu.bus.carry(self.now, to, &mut self.store, &mut ended);
        }
        self.pass(to);
        for end in ended {
            self.ended(end);
        }
        for gpu in &mut self.gpus {
            gpu.compute.settle(to);
        }
        while let Some(place) = self.timers.iter().position(|timer| timer.at <= to) {
            match self.timers.remove(place).due {
                Due::Reply(connection, then) => {
                    let reply = self.finish(then);
                    self.reply(connection, reply);
                }
                Due::Teardown(session) => self.tear_down(session),
            }
        }
    }

    fn ended(&mut self, end: Ended) {
        match end.result {
            Ok(()) => self.items.finish(end.item),
            Err(Fault::Gone) => self.drop_work(end.context),
            Err(fault) => self.fail_context(end.context, fault),
        }
    }

    /// A process's remains are given back after a while.
    pub(crate) fn tear_down_later(&mut self, session: SessionId) {
        let pending = |timer: &Timer| matches!(timer.due, Due::Teardown(other) if other == session);
        if !self.timers.iter().any(pending) {
            self.timers.push(Timer { at: self.now + self.spec.costs.teardown, due: Due::Teardown(session) });
        }
    }

    /// Gives back the remains of processes now. True if there were any.
    ///
    /// On a real GPU the last close of a process's files returns when its memory is back. Here it returns at once, and
    /// whoever saw it and asks for that memory would find it taken: a request that finds no memory does not wait, but
    /// calls this and looks again.
    pub(crate) fn tear_down_now(&mut self) -> bool {
        let is_teardown = |timer: &mut Timer| matches!(timer.due, Due::Teardown(_));
        let due: Vec<Timer> = self.timers.extract_if(.., is_teardown).collect();
        for timer in &due {
            if let Due::Teardown(session) = timer.due {
                self.tear_down(session);
            }
        }
        !due.is_empty()
    }

    /// Starts what can start, and answers what can be answered, until nothing changes any more.
    pub(crate) fn pump(&mut self) {
        for (device, bytes) in self.store.physical.take_released() {
            self.gpus[device.0 as usize].bus.clear(bytes);
        }
        let polled = std::mem::take(&mut self.polled);
        for (item, context, job) in polled {
            self.start(item, context, job);
        }
        loop {
            while let Some((item, context, job)) = self.items.take_ready() {
                self.start(item, context, job);
            }
            for gpu in &mut self.gpus {
                gpu.compute.settle(self.now);
            }
            if !self.settle_waits() && !self.items.has_ready() {
                return;
            }
        }
    }

    /// Jobs that were held while their group was frozen.
    pub(crate) fn start_held(&mut self) {
        for (item, context, job) in std::mem::take(&mut self.held) {
            self.start(item, context, job);
        }
    }

    /// Drops jobs of a context that no engine has.
    pub(crate) fn drop_jobs(&mut self, context: ContextId) {
        let others = |(_, other, _): &(_, ContextId, Job)| *other != context;
        self.held.retain(others);
        self.polled.retain(others);
    }
}
