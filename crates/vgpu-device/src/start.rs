//! Starting items that are ready: on an engine, or at once where none is needed.

use cuda::CUresult;
use vgpu_messages::{Callback, CallbackId, ContextId};

use crate::engine::bus::{Passing, Way};
use crate::engine::compute::Active;
use crate::item::{ItemId, Job};
use crate::machine::{Machine, Outgoing};
use crate::space::touch::{Fault, Touch, Toucher};

impl Machine {
    /// Starts an item. Where its group is frozen and no engine would hold it, it is kept for later.
    pub(crate) fn start(&mut self, item: ItemId, context: ContextId, job: Job) {
        let Some(its) = self.contexts.get(&context) else {
            self.items.finish(item);
            return;
        };
        let (gpu, compute, copies) = (its.device.0 as usize, its.compute, its.copies);
        match job {
            Job::Kernel { kernel, start, who } => {
                let active = Active { item, context, kernel, who, start };
                self.gpus[gpu].compute.submit(self.now, compute, active);
            }
            Job::Transfer { way, transfer, pageable, peer, who } => {
                let (slower, fails) = self.faults.copy(who.pid);
                let rate_max = match (pageable, peer) {
                    (true, _) => Some(self.spec.bus_pageable),
                    (_, true) => Some(self.spec.peer_rate),
                    _ => None,
                };
                let passing = Passing {
                    item,
                    context,
                    transfer,
                    who,
                    rate_max,
                    slower,
                    fails,
                    start: self.spec.costs.copy,
                    done: 0,
                };
                let group = if way == Way::In { copies[0] } else { copies[1] };
                self.gpus[gpu].bus.submit(way, group, passing);
            }
            job if self.rm.group(compute).is_some_and(|group| group.frozen) => {
                self.held.push((item, context, job));
            }
            job => self.start_at_once(item, context, job),
        }
    }

    fn start_at_once(&mut self, item: ItemId, context: ContextId, job: Job) {
        let result = match job {
            Job::Nothing => Ok(()),
            Job::Mark(event) => {
                self.mark(event, item);
                Ok(())
            }
            Job::Host(call) => {
                let session = self.contexts[&context].session;
                let id = CallbackId(self.id());
                let status = self.contexts[&context].error.unwrap_or(CUresult::SUCCESS).into();
                self.callbacks.insert(id, item);
                let callback = Callback { id, call, status };
                let its = self.sessions.get_mut(&session).expect("a context's session");
                match its.callback_connection {
                    Some(connection) => self.push_outgoing(Outgoing::Callback(connection, callback)),
                    None => its.callbacks_due.push(callback),
                }
                return;
            }
            Job::WaitValue { address, value, wide, flags, ref who } => {
                match self.value_at(address.0, wide, who) {
                    Ok(now) if compares(now, value, wide, flags) => Ok(()),
                    Ok(_) => {
                        self.polled.push((item, context, job));
                        return;
                    }
                    Err(fault) => Err(fault),
                }
            }
            Job::WriteValue { address, value, wide, who } => {
                let bytes = value.to_le_bytes();
                let mut memory = Touch { store: &mut self.store, who: &who };
                memory.write(address.0, &bytes[..if wide { 8 } else { 4 }])
            }
            Job::FreeAsync(address) => {
                let session = self.contexts[&context].session;
                self.pool_free_now(session, address);
                Ok(())
            }
            Job::Kernel { .. } | Job::Transfer { .. } => unreachable!("these have an engine"),
        };
        match result {
            Ok(()) => self.items.finish(item),
            Err(Fault::Gone) => self.drop_work(context),
            Err(fault) => self.fail_context(context, fault),
        }
    }

    fn value_at(&mut self, address: u64, wide: bool, who: &Toucher) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        let mut memory = Touch { store: &mut self.store, who };
        memory.read(address, &mut bytes[..if wide { 8 } else { 4 }])?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// As `CUstreamWaitValue_flags` say: at least (as if counting never ended), equal, any bit, not all bits.
fn compares(now: u64, value: u64, wide: bool, flags: u32) -> bool {
    match flags & 3 {
        0 if wide => now.wrapping_sub(value) as i64 >= 0,
        0 => (now as u32).wrapping_sub(value as u32) as i32 >= 0,
        1 => now == if wide { value } else { u64::from(value as u32) },
        2 => now & value != 0,
        _ if wide => !(now | value) != 0,
        _ => !((now | value) as u32) != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::compares;

    #[test]
    fn values_compare_as_the_driver_says() {
        assert!(compares(5, 5, false, 0) && compares(6, 5, false, 0) && !compares(4, 5, false, 0));
        assert!(compares(1, 0xffff_ffff, false, 0), "counting went round");
        assert!(compares(5, 5, true, 1) && !compares(6, 5, true, 1));
        assert!(compares(6, 2, true, 2) && !compares(6, 1, true, 2));
        assert!(compares(1, 2, false, 3) && !compares(0xffff_ffff, 0, false, 3));
    }
}
