//! How tenants come: connections are accepted, and whoever says hello is refused, or let in when there is room.

use super::{Daemon, Known, Newcomer};
use crate::conversation::{self, Ears};
use crate::events::Who;
use crate::executor::{Link, Work};
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use crate::turns::Event;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use wire::{Connection, FromDaemon, Listener, SharedPage, TenantId};

/// Tenants at a time: as many as fit into one `Listing` with the longest names. Contexts fill a GPU before that.
const TENANTS_MAX: usize = 128;

/// Connections at a time: tenants, those that linger, and people who ask. Each is a thread and a few files.
const CONNECTIONS_MAX: usize = 1024;

/// Accepts whoever comes, for ever.
pub(super) fn accept(listener: &Listener, ears: &Ears) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(cause) => {
                tracing::error!("cannot accept a connection: {cause}");
                // Out of files, most likely: they come back when a tenant leaves.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if open.load(Relaxed) >= CONNECTIONS_MAX {
            tracing::warn!("a connection is refused: there are {CONNECTIONS_MAX} already");
            continue;
        }
        let (ears, mine) = (ears.clone(), open.clone());
        open.fetch_add(1, Relaxed);
        let holder = std::thread::Builder::new().name("conversation".into());
        let held = holder.spawn(move || {
            conversation::hold(connection, &ears);
            mine.fetch_sub(1, Relaxed);
        });
        if let Err(cause) = held {
            open.fetch_sub(1, Relaxed);
            tracing::error!("no thread for a connection: {cause}");
        }
    }
}

impl Daemon {
    /// Someone is at the door: refused, or let in as soon as there is room for its context.
    pub(super) fn hello(&mut self, newcomer: Newcomer) {
        let refusal = match self.turns.admits() {
            _ if self.stopping => Some("the daemon is stopping".to_owned()),
            _ if self.known.len() + self.arriving.len() >= TENANTS_MAX => {
                Some(format!("{TENANTS_MAX} programs are here already"))
            }
            Err(reason) => Some(reason),
            Ok(()) => None,
        };
        if let Some(reason) = refusal {
            tracing::warn!("process {} ({}) is refused: {reason}", newcomer.pid, newcomer.program);
            let _ = newcomer.connection.send(&FromDaemon::Refused { reason }, &[]);
            return;
        }
        let tenant = TenantId(self.next_tenant);
        self.next_tenant += 1;
        self.arriving.insert(tenant, newcomer);
        self.step(Event::Joined(tenant));
        if let Some(newcomer) = self.arriving.get(&tenant) {
            let reason = "room is being made for its context".into();
            let _ = newcomer.connection.send(&FromDaemon::Waiting { reason }, &[]);
        }
    }

    /// Strikes off someone who went away before it was let in.
    pub(super) fn desert(&mut self, connection: &Arc<Connection>) {
        let gone = self.arriving.iter().find(|(_, newcomer)| Arc::ptr_eq(&newcomer.connection, connection));
        let Some((&tenant, _)) = gone else { return };
        self.arriving.remove(&tenant);
        self.step(Event::Left(tenant));
        self.step(Event::Buried(tenant));
    }

    pub(super) fn welcome(&mut self, tenant: TenantId) {
        let Some(newcomer) = self.arriving.remove(&tenant) else { return };
        let Newcomer { pid, job, program, connection, answer } = newcomer;
        let welcome = FromDaemon::Welcome {
            tenant,
            gpu: self.setup.uuid.clone(),
            capacity_bytes: self.setup.rules.capacity_bytes,
        };
        let begin = || -> anyhow::Result<_> {
            let page = SharedPage::create(self.epoch)?;
            // One of the first two messages in its queue: this does not wait.
            connection.send(&welcome, &[page.file()])?;
            Ok((Arc::new(Grip::new(page, self.setup.manager)), Outgoing::start(connection.clone())?))
        };
        let (grip, outgoing) = match begin() {
            Ok(begun) => begun,
            Err(cause) => {
                tracing::error!("process {pid} ({program}) cannot be let in: {cause:#}");
                connection.shut_down();
                self.step(Event::Left(tenant));
                self.step(Event::Buried(tenant));
                return;
            }
        };
        let who = Who { tenant, pid, job };
        let link = Link { who: who.clone(), grip: grip.clone(), outgoing: outgoing.clone() };
        self.order(Work::Join(tenant, link));
        self.known.insert(tenant, Known { who, program, outgoing });
        self.note("joined", tenant, json!({}));
        let _ = answer.send((tenant, grip));
    }
}
