//! Handles in the host's memory, mapped at addresses of the device, and handles that change their home.
//!
//! A handle changes its home in four steps: its tenant makes memory in the other one, mapped nowhere; while the tenant is
//! frozen that is filled here; the tenant puts it under the handle's addresses; what was there before goes. What lies
//! under the addresses is the valid copy until the tenant says that it has exchanged it, and nothing else has a byte of it.
//! So whoever dies, whenever, nothing is lost: what was prepared and not exchanged is dropped on both sides.
//!
//! A tenant that was stopped may answer a question that was given up, after it was asked again: with memory that it lets go of
//! next. So each question has a number, and only what is said about the open one of a handle counts. Numbers begin anew with
//! each worker: before a tenant joins the next one it drops what is prepared, what is to be, and what it has not sent.
//!
//! None of these handles takes part in moves: whoever plans sees to that. Those on the device that are asked for another home
//! are as all others until their tenant has exchanged them.

use super::{Held, Mover, MoverError, Place};
use crate::device::{Device, Lane};
use crate::exchange::Reply;
use crate::{BLOCK_BYTES, HandleKey, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often to look whether copies are done.
const LOOK: Duration = Duration::from_micros(200);

/// Where a handle belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On the device, from which it may be away.
    Device,
    /// In the host's memory.
    Host,
}

/// What became of a handle whose tenant was asked to exchange it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has this home now.
    Moved(Home),
    /// It has the home that it had.
    Stayed,
}

/// What a tenant is asked for one of its handles, and answers: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which one of the tenant's.
    pub handle: u64,
    /// Never used again.
    pub number: u64,
}

/// In the host's memory.
#[derive(Debug)]
pub(super) struct Hosted<M> {
    pub(super) bytes: u64,
    pub(super) memory: M,
}

/// On its way to another home.
#[derive(Debug)]
struct Homing<M> {
    /// Of the question that is open.
    number: u64,
    bytes: u64,
    to: Home,
    stage: Stage<M>,
}

#[derive(Debug)]
enum Stage<M> {
    /// The tenant is to make memory.
    Asked,
    /// It has, but what it made cannot be used here: it is to let that go.
    Unusable,
    /// It has.
    Ready(M),
    /// That has the handle's bytes.
    Filled(M),
    /// The tenant is to exchange. It may have done so already.
    Exchanging(M),
}

impl<M> Stage<M> {
    fn memory(self) -> Option<M> {
        match self {
            Stage::Asked | Stage::Unusable => None,
            Stage::Ready(memory) | Stage::Filled(memory) | Stage::Exchanging(memory) => Some(memory),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Homes<M> {
    pub(super) hosted: BTreeMap<HandleKey, Hosted<M>>,
    homing: BTreeMap<HandleKey, Homing<M>>,
    /// The number of the last question.
    asked: u64,
    /// What was exchanged, or was not, and has not been told.
    settled: Vec<(HandleKey, Settled)>,
}

impl<M> Default for Homes<M> {
    fn default() -> Self {
        Homes { hosted: BTreeMap::new(), homing: BTreeMap::new(), asked: 0, settled: Vec::new() }
    }
}

impl<M> Homes<M> {
    /// Whose handles are here.
    pub(super) fn owners(&self) -> BTreeSet<Owner> {
        self.hosted.keys().chain(self.homing.keys()).map(|key| key.owner).collect()
    }
}

impl<D: Device> Mover<D> {
    /// Takes in a handle that lies in the host's memory, by its file.
    pub fn adopt_hosted(&mut self, key: HandleKey, bytes: u64, file: OwnedFd) -> Result<(), MoverError> {
        if self.handles.contains_key(&key) || self.homes.hosted.contains_key(&key) {
            return Err(MoverError::Duplicate { key });
        }
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(MoverError::BadSize { key, bytes });
        }
        let imported = self.device.device_mut().import(file, bytes);
        let memory = imported.map_err(|error| MoverError::Import { key, bytes, error })?;
        self.homes.hosted.insert(key, Hosted { bytes, memory });
        Ok(())
    }

    /// Drops all that was taken in of a tenant's memory in the host's: whatever happens to that, nobody here uses it. Not what its
    /// tenant was asked to exchange, and may have exchanged: where that lies nobody knows before it has answered. False if there is
    /// such.
    pub fn forget_hosted(&mut self, owner: Owner) -> bool {
        let exchanging: BTreeSet<HandleKey> = self.exchanging(owner).collect();
        for key in self.homed(owner).difference(&exchanging) {
            self.drop_home(*key);
        }
        self.looks.forget_owner(owner);
        exchanging.is_empty()
    }

    /// What is in the host's memory of a tenant, or on its way to another home.
    fn homed(&self, owner: Owner) -> BTreeSet<HandleKey> {
        let all = self.homes.hosted.keys().chain(self.homes.homing.keys());
        all.filter(|key| key.owner == owner).copied().collect()
    }

    /// Whether this lies in the host's memory, and was taken in.
    pub fn is_hosted(&self, key: HandleKey) -> bool {
        self.homes.hosted.contains_key(&key)
    }

    /// How large a handle is that lies in the host's memory, and was taken in.
    pub fn hosted_bytes(&self, key: HandleKey) -> Option<u64> {
        self.homes.hosted.get(&key).map(|hosted| hosted.bytes)
    }

    /// Whose handles lie in the host's memory.
    pub fn hosts(&self) -> BTreeSet<Owner> {
        self.homes.hosted.keys().map(|key| key.owner).collect()
    }

    /// A handle is to have another home: its tenant is about to be asked for memory there. The question, if it can be so.
    pub fn begin_homing(&mut self, key: HandleKey, to: Home) -> Option<Question> {
        let bytes = self.at_home(key, to)?.0;
        if self.homes.homing.contains_key(&key) {
            return None;
        }
        self.homes.asked += 1;
        let number = self.homes.asked;
        self.homes.homing.insert(key, Homing { number, bytes, to, stage: Stage::Asked });
        Some(Question { handle: key.handle, number })
    }

    /// The size and the memory of a handle that is wholly in the other home than this one.
    fn at_home(&self, key: HandleKey, to: Home) -> Option<(u64, &D::Memory)> {
        match to {
            Home::Device => self.homes.hosted.get(&key).map(|hosted| (hosted.bytes, &hosted.memory)),
            Home::Host => match self.handles.get(&key)? {
                Held { bytes, place: Place::Device { memory, .. } } => Some((*bytes, memory)),
                _ => None,
            },
        }
    }

    /// Whether a tenant has been asked for memory, and has not answered for all of it.
    pub fn awaits_memory(&self, owner: Owner) -> bool {
        self.homes.homing.iter().any(|(key, it)| key.owner == owner && matches!(it.stage, Stage::Asked))
    }

    /// Handles that their tenant was asked to exchange, and has not answered for.
    pub fn exchanging(&self, owner: Owner) -> impl Iterator<Item = HandleKey> {
        let exchanging = move |(key, it): &(&HandleKey, &Homing<_>)| {
            key.owner == owner && matches!(it.stage, Stage::Exchanging(_))
        };
        self.homes.homing.iter().filter(exchanging).map(|(key, _)| *key)
    }

    /// Fills what was prepared for these, as far as it was; their tenants are frozen. Says which of them may be exchanged.
    pub fn fill(&mut self, keys: &[HandleKey], patience: Duration) -> Vec<HandleKey> {
        let mut filled = Vec::new();
        let mut marks = Vec::new();
        for &key in keys {
            let Some(Homing { to, stage: Stage::Ready(memory), .. }) = self.homes.homing.get(&key) else {
                continue;
            };
            let (to, device) = (*to, self.device.device());
            let Some((bytes, from)) = self.at_home(key, to) else { continue };
            let (from, memory) = (device.target(from), device.target(memory));
            let lane = if to == Home::Host { Lane::Out } else { Lane::In };
            let device = self.device.device_mut();
            match device.copy_between(lane, &from, &memory, bytes).and_then(|()| device.mark(lane)) {
                Ok(mark) => {
                    filled.push(key);
                    marks.push(mark);
                }
                Err(error) => tracing::warn!(%key, %error, "cannot copy it to its other home"),
            }
        }
        let until = Instant::now() + patience;
        let all_passed = marks.into_iter().all(|mark| {
            loop {
                match self.device.device_mut().passed(mark) {
                    Ok(true) => break true,
                    Ok(false) if Instant::now() < until => std::thread::sleep(LOOK),
                    _ => break false,
                }
            }
        });
        // Also what failed at its start may be under way in part, and reads what may go.
        if (!all_passed || filled.len() < keys.len())
            && let Err(error) = self.device.device_mut().drain()
        {
            tracing::error!(%error, "copies to another home failed, and may go on");
        }
        if !all_passed {
            return Vec::new();
        }
        for key in &filled {
            if let Some(homing) = self.homes.homing.remove(key) {
                let stage = homing.stage.memory().map_or(Stage::Asked, Stage::Filled);
                self.homes.homing.insert(*key, Homing { stage, ..homing });
            }
        }
        filled
    }

    /// The tenant is about to be asked to exchange this: what was made for this question. None if that has not all of its bytes.
    pub fn begin_exchange(&mut self, key: HandleKey) -> Option<Question> {
        let homing = self.homes.homing.remove(&key)?;
        let (is_filled, stage) = match homing.stage {
            Stage::Filled(memory) => (true, Stage::Exchanging(memory)),
            other => (false, other),
        };
        let question = Question { handle: key.handle, number: homing.number };
        self.homes.homing.insert(key, Homing { stage, ..homing });
        is_filled.then_some(question)
    }

    /// What a tenant was asked to prepare and not to exchange is not wanted any more. Says what that was; answers that are on
    /// their way are passed over.
    pub fn give_up_homing(&mut self, owner: Owner) -> Vec<Question> {
        let is_mine = |(key, it): &(&HandleKey, &Homing<_>)| {
            key.owner == owner && !matches!(it.stage, Stage::Exchanging(_))
        };
        let mine = self.homes.homing.iter().filter(is_mine);
        let given_up: Vec<Question> =
            mine.map(|(key, it)| Question { handle: key.handle, number: it.number }).collect();
        for question in &given_up {
            self.drop_homing(HandleKey { owner, handle: question.handle });
        }
        given_up
    }

    /// What became of handles that tenants were asked to exchange, since the last call.
    pub fn take_settled(&mut self) -> Vec<(HandleKey, Settled)> {
        std::mem::take(&mut self.homes.settled)
    }

    /// Takes in what a tenant says about homes.
    pub(crate) fn home_answer(&mut self, reply: Reply) {
        match reply {
            Reply::Prepared { owner, questions, files } => {
                for (question, file) in questions.into_iter().zip(files) {
                    // What nobody wants any more closes here, and its tenant was told so.
                    if let Some(key) = self.open(owner, question) {
                        self.prepared(key, file);
                    }
                }
            }
            Reply::Exchanged { owner, questions } => {
                for question in questions {
                    match self.open(owner, question) {
                        Some(key) => self.exchanged(key),
                        None => tracing::debug!(%owner, ?question, "exchanged, which nobody waits for"),
                    }
                }
            }
            Reply::Stayed { owner, questions, code, call } => {
                for question in questions {
                    let Some(key) = self.open(owner, question) else { continue };
                    // Freed ones are told of so too.
                    if code != 0 {
                        tracing::warn!(%key, code, call, "it stays in its home");
                    }
                    self.stayed(key);
                }
            }
            _ => {}
        }
    }

    /// What a question is about, if it is the one that is open for that.
    fn open(&self, owner: Owner, question: Question) -> Option<HandleKey> {
        let key = HandleKey { owner, handle: question.handle };
        self.homes.homing.get(&key).filter(|homing| homing.number == question.number).map(|_| key)
    }

    fn prepared(&mut self, key: HandleKey, file: OwnedFd) {
        let Some(Homing { bytes, stage: Stage::Asked, .. }) = self.homes.homing.get(&key) else {
            tracing::debug!(%key, "prepared twice");
            return;
        };
        let stage = match self.device.device_mut().import(file, *bytes) {
            Ok(memory) => Stage::Ready(memory),
            Err(error) => {
                tracing::warn!(%key, %error, "cannot import what was made for it in its other home");
                // Until it is given up, which is when its tenant is told.
                Stage::Unusable
            }
        };
        if let Some(homing) = self.homes.homing.get_mut(&key) {
            homing.stage = stage;
        }
    }

    fn exchanged(&mut self, key: HandleKey) {
        let is_exchanging = |homing: &Homing<_>| matches!(homing.stage, Stage::Exchanging(_));
        let is_awaited = self.homes.homing.get(&key).is_some_and(is_exchanging);
        let awaited = is_awaited.then(|| self.homes.homing.remove(&key)).flatten();
        let Some(Homing { bytes, to, stage: Stage::Exchanging(memory), .. }) = awaited else {
            tracing::debug!(%key, "exchanged, which nobody waits for");
            return;
        };
        // A file that is kept is of the memory that it had.
        self.never_pass(key);
        match to {
            Home::Host => {
                // With the copy of it that the arena may have.
                if let Err(error) = self.drop_on_device(key) {
                    tracing::warn!(%error, "what changed its home was not on the device");
                }
                self.homes.hosted.insert(key, Hosted { bytes, memory });
            }
            Home::Device => {
                if let Some(Hosted { memory, bytes }) = self.homes.hosted.remove(&key) {
                    self.release(key, memory, bytes);
                }
                self.handles.insert(key, Held { bytes, place: Place::Device { memory, copy: None } });
            }
        }
        self.homes.settled.push((key, Settled::Moved(to)));
    }

    fn stayed(&mut self, key: HandleKey) {
        let was_exchanging = self.exchanging(key.owner).any(|other| other == key);
        self.drop_homing(key);
        if was_exchanging {
            self.homes.settled.push((key, Settled::Stayed));
        }
    }

    fn drop_homing(&mut self, key: HandleKey) {
        if let Some(Homing { bytes, stage, .. }) = self.homes.homing.remove(&key)
            && let Some(memory) = stage.memory()
        {
            self.drop_import(key, memory, bytes);
        }
    }

    /// A handle is gone: so is what was prepared for it. True if it lay in the host's memory.
    pub(super) fn drop_home(&mut self, key: HandleKey) -> bool {
        self.drop_homing(key);
        self.looks.forget(key);
        let Some(Hosted { bytes, memory }) = self.homes.hosted.remove(&key) else { return false };
        self.release(key, memory, bytes);
        true
    }

    /// The same for all of a tenant.
    pub(super) fn drop_homes(&mut self, owner: Owner) {
        for key in self.homed(owner) {
            self.drop_home(key);
        }
        self.homes.settled.retain(|(key, _)| key.owner != owner);
        self.looks.forget_owner(owner);
    }
}
