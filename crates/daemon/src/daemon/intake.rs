//! What reaches the main loop, to whom it goes.

use super::{Daemon, Input, Lost};
use crate::events::nanos;
use crate::executor::{Done, Work};
use sched::{Event, Time};

impl Daemon {
    pub(super) fn take_in(&mut self, input: Input) {
        match input {
            Input::Hello(newcomer) => self.hello(newcomer),
            Input::MayRejoin(applicant, answer) => {
                let _ = answer.send(self.may_rejoin(&applicant));
            }
            Input::Rejoin(returner) => self.rejoin(*returner),
            Input::Deserted(connection) => self.desert(&connection),
            Input::Channels(tenant, channels) => self.has_channels(tenant, channels > 0),
            Input::Wants(tenant, since_ns) => self.wants(tenant, since_ns),
            Input::Hint(tenant, at_ns, source) => self.hint(tenant, at_ns, source),
            Input::Served(tenant) => self.served(tenant),
            Input::Phase(tenant) => self.phase(tenant),
            Input::Set(tenant, request, change) => self.set_for(tenant, request, &change),
            Input::Grow(tenant, request, bytes) => self.ask(tenant, request, bytes),
            Input::Allocated(request, owned, bytes, shown) => self.claim(request, owned, bytes, shown),
            Input::Returned(tenant, request) => {
                self.step(Event::Returned { tenant, request });
                self.forget_spent(tenant, request);
            }
            Input::Freed(tenant, handles) => self.free(tenant, handles),
            Input::Pin(tenant, request, handles) => self.pin(tenant, request, handles),
            Input::Unpin(tenant, handles) => self.unpin(tenant, &handles),
            Input::Publish(tenant, publish) => self.publish(tenant, publish),
            Input::Open(tenant, request, token) => self.open_published(tenant, request, token),
            Input::CloseOpened(tenant, token) => self.close_published(tenant, token),
            Input::Keep(tenant, request, bytes) => self.ask_to_keep(tenant, request, bytes),
            Input::Kept(request, owned, bytes) => self.keep(request, owned, bytes),
            Input::GrowHost(tenant, request, bytes) => self.ask_for_host(tenant, request, bytes),
            Input::Hosted(request, owned, bytes) => self.host(request, owned, bytes),
            Input::HostedBefore(tenant, handles) => self.step(Event::HostedBefore { tenant, handles }),
            Input::Shown(owned, shown) => self.show(owned, shown),
            Input::HostShown(owned, bytes, file) => self.host_shown(owned, bytes, file),
            Input::LetGo(tenant, process, answer) => {
                self.order_for(tenant, Work::LetGo(tenant, process, answer));
            }
            Input::Left(tenant, seen) => self.leave(tenant, seen),
            Input::Lingers(tenant) => {
                tracing::warn!(
                    "tenant {tenant} hung up and goes on without rota; what it holds stays counted"
                );
                self.step(Event::Lingers(tenant));
            }
            Input::Closed(tenant) => self.closed(tenant),
            Input::List(answer) => {
                let _ = answer.send(self.listing());
            }
            Input::Command(asked) => self.command(asked),
            Input::Survey { uid, job, gpus, answer } => {
                let _ = answer.send(self.survey(uid, &job, &gpus));
            }
            Input::RootGone(job, pid) => self.root_gone(job, pid),
            Input::Done(done) => {
                self.pins_may_stay = true;
                self.done(done);
            }
            Input::Lost(reason) => self.lose(reason),
            Input::Look(answer) => {
                let _ = answer.send(self.books());
            }
            Input::Sight(sight) => self.sight(sight),
            Input::Deep(told) => self.went_deep(told),
            Input::Stop => {
                self.stopping = true;
                if !self.known.is_empty() {
                    tracing::warn!(
                        "stopping when {} programs have ended; ask again to stop at once",
                        self.known.len()
                    );
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Action(op, outcome, at) => {
                let at = Time(nanos(self.events.at(at)));
                let off = self.action_ends(op, &outcome, at);
                self.warming.action_ends(op, &outcome);
                self.step_at(at, Event::Done { op, outcome });
                self.action_ended();
                if let Some(tenant) = off {
                    self.find_untold_work(tenant);
                }
                if let Some(tenant) = self.warming.action_ended() {
                    self.await_request(tenant);
                }
            }
            Done::Adopted(owned, movable) => self.adopted(owned, movable),
            Done::Arena(bytes) => self.step(Event::Arena(bytes)),
            Done::Broken(why) => self.lost = Some(Lost::Context(why)),
            Done::Forgotten(tenant, handles) => self.forgotten(tenant, handles),
            Done::Answers(tenant) => self.step(Event::Answers(tenant)),
            Done::Looked(tenant, seen) => self.step(Event::Looked { tenant, seen }),
            Done::HomeIs(owned, on_host) => self.step(Event::HomeIs { owned, on_host }),
            Done::Reaped(tenant, seen) => self.reaped(tenant, seen),
            Done::TakenOver(tenant, found) => self.taken_over(tenant, found),
            Done::LetGo(tenant, process, answer) => self.let_go(tenant, process, answer),
        }
    }
}
