//! What tenants say when no exchange waits for it: after one was given up, or between two.

use super::requests::requests;
use super::{Reply, Tenants};
use crate::device::Device;
use crate::exchange::MoveError;
use crate::{HandleKey, Mover, Owner};

impl<D: Device> Mover<D> {
    /// Takes in what a tenant says outside of an exchange. Ends moves that were given up, as far as this answers them.
    ///
    /// The result is a tenant that must be ended, as [`super::Outcome::must_end`] says it of an exchange.
    pub fn late(&mut self, reply: Reply, tenants: &mut dyn Tenants) -> Option<Owner> {
        self.end_given_up(tenants);
        self.settle(reply, tenants)
    }

    /// The same, but looks at no copies: an exchange does that for its own.
    pub(super) fn settle(&mut self, reply: Reply, tenants: &mut dyn Tenants) -> Option<Owner> {
        let mut must_end = None;
        match reply {
            Reply::Unmapped { owner, handles } => {
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    if self.unmapped(key).or_else(|| self.backed_out(key)).is_none() {
                        tracing::debug!(%key, "unmapped, which nobody waits for");
                    }
                }
            }
            Reply::Created { owner, handles, files } => {
                // The move was given up: the memory is not filled, but handed back. Files without a taker close here.
                let mut files = files.into_iter();
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    drop(files.next());
                    match self.created(key, None) {
                        Err(MoveError::NoFile) => self.ask_to_unmap(&[key], tenants),
                        _ => tracing::debug!(%key, "created, which nobody waits for"),
                    }
                }
            }
            Reply::Taken { owner, handles } => {
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    // All of it is there, so it is back.
                    match self.taken(key) {
                        true => drop(self.record_in(&[key])),
                        false => tracing::debug!(%key, "taken, which nobody waits for"),
                    }
                }
            }
            Reply::Failed { owner, handles, code, call } => {
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    tracing::warn!(%key, code, call, "a tenant failed after its move was given up");
                    if self.is_backing_out(key) {
                        must_end = Some(owner);
                    }
                    self.unmap_failed(key);
                    self.create_failed(key);
                    self.take_failed(key);
                }
            }
            Reply::Gone { owner } => {
                self.drop_owner(owner);
            }
            Reply::Freed { owner, handles } => {
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    match self.drop_handle(key) {
                        Ok(dropped) => self.remember_freed(key, dropped.device_bytes),
                        // Kept by the driver, or not taken in yet: then the order to forget it comes behind.
                        Err(error) => tracing::debug!(%error, "a tenant freed what is not there"),
                    }
                }
            }
            Reply::Prepared { .. } | Reply::Exchanged { .. } | Reply::Stayed { .. } => {
                self.home_answer(reply);
            }
        }
        must_end
    }

    /// Ends copies of moves that were given up, as far as they are over. To be called from time to time while something
    /// is unsettled.
    pub fn catch_up(&mut self, tenants: &mut dyn Tenants) {
        self.end_given_up(tenants);
    }

    /// Ends copies of moves that were given up.
    pub(super) fn end_given_up(&mut self, tenants: &mut dyn Tenants) {
        self.reap();
        let backing_out = self.sweep();
        self.ask_to_unmap(&backing_out, tenants);
    }

    pub(crate) fn ask_to_unmap(&mut self, keys: &[HandleKey], tenants: &mut dyn Tenants) {
        for (owner, handles) in requests(keys, self.request_bytes, |key| self.bytes_of(key)) {
            if tenants.unmap(owner, &handles).is_err() {
                self.drop_owner(owner);
            }
        }
    }
}
