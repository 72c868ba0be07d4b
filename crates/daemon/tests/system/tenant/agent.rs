//! The agent: serves the daemon's orders, with the manners it was given.

use super::memory::{check, device_memory};
use super::{Manners, Order, Shared, Verdict, lock};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use wire::{FromDaemon, HandleId, ToDaemon};

impl Shared {
    /// The agent.
    pub(super) fn serve(&self, manners: Manners) {
        while let Ok((message, files)) = self.connection.receive::<FromDaemon>() {
            match message {
                FromDaemon::Granted { grant } => {
                    lock(&self.verdicts).insert(grant, Verdict::Granted);
                }
                FromDaemon::Denied { grant, reason } => {
                    lock(&self.verdicts).insert(grant, Verdict::Denied(reason));
                }
                FromDaemon::Unmap { handles } => {
                    self.note_order(Order::Unmap);
                    if manners == Manners::FreesAtUnmap {
                        self.free(&mut lock(&self.pieces), handles[0]);
                    }
                    if manners == Manners::UnmapsLate {
                        self.await_permission();
                    }
                    if manners != Manners::IgnoresUnmap {
                        self.unmap(handles);
                    }
                }
                FromDaemon::Create { handles } => {
                    self.note_order(Order::Create);
                    if manners == Manners::FreesAtCreate {
                        self.free(&mut lock(&self.pieces), handles[0]);
                    }
                    if manners == Manners::CreatesLate {
                        self.await_permission();
                    }
                    if manners != Manners::IgnoresCreate {
                        self.create(handles);
                    }
                }
                FromDaemon::Vacate { number } => self.say(&ToDaemon::Vacated { number }, &[]),
                FromDaemon::Reenter => {}
                FromDaemon::Take { handles } => {
                    self.note_order(Order::Take);
                    if handles.len() != files.len() {
                        self.note_wrong(format!("{} files for {handles:?}", files.len()));
                    }
                    match manners {
                        Manners::PassesOnly => {
                            let failed = ToDaemon::Failed { handles, code: 304, call: "Take".into() };
                            self.say(&failed, &[]);
                        }
                        _ => self.take(handles, files),
                    }
                }
                FromDaemon::WarmUp => {
                    // Otherwise one is only about to be wanted, which this one does not stay awake for.
                    let ordered = self.page.warm_ups_ordered();
                    if self.warm_ups.swap(ordered, SeqCst) != ordered {
                        self.page.count_warm_up(true);
                    }
                }
                FromDaemon::Pinned { request }
                | FromDaemon::Published { request }
                | FromDaemon::Changed { request } => {
                    lock(&self.verdicts).insert(request, Verdict::Granted);
                }
                FromDaemon::Opened { request, sizes, complete } => {
                    lock(&self.opened).extend(sizes.into_iter().zip(files));
                    if complete {
                        lock(&self.verdicts).insert(request, Verdict::Granted);
                    }
                }
                FromDaemon::Refused { reason } | FromDaemon::Lost { reason } => {
                    *lock(&self.refused) = Some(reason);
                }
                other => self.note_wrong(format!("the daemon said {other:?}")),
            }
        }
    }

    fn await_permission(&self) {
        while !self.may_answer.load(SeqCst) && !self.ending.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn note_order(&self, order: Order) {
        if !self.page.frozen() || !self.engine.frozen() || self.page.resident() {
            self.note_wrong(format!(
                "{order:?} of a tenant with frozen page {}, frozen engine {}, committed {}",
                self.page.frozen(),
                self.engine.frozen(),
                self.page.resident()
            ));
        }
        lock(&self.orders).push(order);
    }

    fn unmap(&self, handles: Vec<HandleId>) {
        let mut pieces = lock(&self.pieces);
        for handle in &handles {
            // One that was freed meanwhile needs no more.
            let Some(piece) = pieces.get_mut(handle) else { continue };
            match piece.file.take() {
                Some(_) => {
                    self.meter.give(piece.bytes);
                    lock(&self.unmapped).insert(*handle);
                }
                None => self.note_wrong(format!("{handle} is to be unmapped twice")),
            }
        }
        self.say(&ToDaemon::Unmapped { handles }, &[]);
    }

    fn take(&self, handles: Vec<HandleId>, files: Vec<OwnedFd>) {
        let mut pieces = lock(&self.pieces);
        for (handle, file) in handles.iter().zip(files) {
            let Some(piece) = pieces.get_mut(handle) else { continue };
            self.meter.take(piece.bytes);
            let file = File::from(file);
            if let Err(block) = check(&file, *handle, piece.written, piece.bytes) {
                self.note_wrong(format!("block {block} of {handle} is not its own when it is taken"));
            }
            if piece.file.replace(file).is_some() {
                self.note_wrong(format!("{handle} is to be taken, and is there"));
            }
        }
        self.say(&ToDaemon::Taken { handles }, &[]);
    }

    fn create(&self, handles: Vec<HandleId>) {
        let mut pieces = lock(&self.pieces);
        let (there, freed): (Vec<_>, Vec<_>) =
            handles.into_iter().partition(|handle| pieces.contains_key(handle));
        for handle in &there {
            let piece = pieces.get_mut(handle).expect("looked up above");
            if piece.file.is_some() {
                self.note_wrong(format!("{handle} is to be created twice"));
            }
            self.meter.take(piece.bytes);
            piece.file = Some(device_memory(piece.bytes));
        }
        let files: Vec<_> =
            there.iter().filter_map(|handle| Some(pieces[handle].file.as_ref()?.as_fd())).collect();
        if !there.is_empty() {
            self.say(&ToDaemon::Created { handles: there.clone() }, &files);
        }
        if !freed.is_empty() {
            self.say(&ToDaemon::Failed { handles: freed, code: 0, call: "freed".into() }, &[]);
        }
    }
}
