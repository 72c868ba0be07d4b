//! Replies that wait.

use vgpu_messages::{Answer, ContextId, Refusal, Reply, StreamId};

use super::Machine;
use super::outcome::{Handled, Outcome, Outgoing, Then};
use super::time::{Due, Timer};
use crate::item::ItemId;
use crate::session::ConnectionId;
use crate::stream::QUEUE_MAX;

/// A request whose answer waits for work.
#[derive(Debug)]
pub(super) struct Wait {
    connection: ConnectionId,
    until: Until,
    then: Option<Then>,
}

#[derive(Debug)]
enum Until {
    Items(Vec<ItemId>, ContextId),
    Room(StreamId),
}

impl Machine {
    /// Answers a request, or puts its answer off.
    pub(super) fn conclude(&mut self, connection: ConnectionId, handled: Handled) {
        match handled {
            Ok(Outcome::Answer(answer)) => self.reply(connection, Ok(answer)),
            Err(refusal) => self.reply(connection, Err(refusal)),
            Ok(Outcome::File(key, kind)) => {
                self.outgoing.push(Outgoing::Reply(connection, Ok(Answer::File), Some((key, kind))));
            }
            Ok(Outcome::After { items, context, then }) => {
                self.waits.push(Wait { connection, until: Until::Items(items, context), then: Some(then) });
            }
            Ok(Outcome::WithRoom(stream, answer)) => {
                let then = Some(Then::Answer(answer));
                self.waits.push(Wait { connection, until: Until::Room(stream), then });
            }
            Ok(Outcome::In(time, then)) => {
                self.timers.push(Timer { at: self.now + time, due: Due::Reply(connection, then) });
            }
            Ok(Outcome::Silent) => {}
        }
    }

    pub(super) fn reply(&mut self, connection: ConnectionId, reply: Reply) {
        if self.connections.contains_key(&connection) {
            self.outgoing.push(Outgoing::Reply(connection, reply, None));
        }
    }

    /// A connection is gone, and what it waited for.
    pub(crate) fn forget_waits(&mut self, connection: ConnectionId) {
        self.waits.retain(|wait| wait.connection != connection);
    }

    /// Answers whose wait is over. True if there was one: that may end other waits.
    pub(super) fn settle_waits(&mut self) -> bool {
        let mut over = Vec::new();
        let mut index = 0;
        while index < self.waits.len() {
            let done = match &mut self.waits[index].until {
                Until::Items(items, _) => {
                    let all = &self.items;
                    items.retain(|item| !all.is_done(*item));
                    items.is_empty()
                }
                Until::Room(stream) => self.items.in_stream(*stream) < QUEUE_MAX,
            };
            if done { over.push(self.waits.remove(index)) } else { index += 1 }
        }
        let any = !over.is_empty();
        for wait in over {
            let then = wait.then.expect("a wait ends once");
            let error = match wait.until {
                Until::Items(_, context) => self.error_after(context),
                Until::Room(_) => None,
            };
            // A context with an error still ends; nothing else is done any more.
            let reply = match (error, then) {
                (Some(refusal), then) if !matches!(then, Then::DestroyContext(_)) => Err(refusal),
                (_, then) => self.finish(then),
            };
            self.reply(wait.connection, reply);
        }
        any
    }

    /// Does what was to be done after a wait.
    pub(super) fn finish(&mut self, then: Then) -> Reply {
        match then {
            Then::Answer(answer) => Ok(answer),
            Then::Free(session, address) => self.free_now(session, address).map(|()| Answer::Done),
            Then::DestroyContext(context) => {
                self.end_context(context);
                Ok(Answer::Done)
            }
            Then::Unregister(session, address) => {
                self.unregister_now(session, address);
                Ok(Answer::Done)
            }
            Then::Lock(session) => self.lock_at_last(session),
            Then::Grip(grip, answer) => {
                self.apply_grip(&grip);
                Ok(answer)
            }
        }
    }

    fn error_after(&self, context: ContextId) -> Option<Refusal> {
        match self.contexts.get(&context) {
            Some(context) => context.error.map(Refusal::from),
            None => Some(cuda::CUresult::CONTEXT_IS_DESTROYED.into()),
        }
    }
}
