//! Pools: memory that is allocated and freed in the order of streams.
//!
//! An allocation has its addresses and bytes at once; a free takes effect when the stream comes to it. What a pool keeps
//! for later is only a number in the books.

mod order;

use std::collections::BTreeMap;

use cuda::CUresult;
use vgpu_messages::memory::{Access, Location};
use vgpu_messages::pool::PoolRequest;
use vgpu_messages::*;

use crate::machine::{Handled, Machine};
use crate::session::ConnectionId;

/// `CUmemPool_attribute`: what may be kept at a synchronisation.
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    session: SessionId,
    device: DeviceId,
    bytes_max: u64,
    used: u64,
    /// What programs asked for of it, without the rounding: what they are told.
    asked: u64,
    asked_high: u64,
    /// Free, but not given back.
    kept: u64,
    reserved_high: u64,
    threshold: u64,
    reuse: [u64; 4],
    access: BTreeMap<Location, Access>,
    is_default: bool,
}

fn invalid() -> Refusal {
    CUresult::INVALID_VALUE.into()
}

impl Machine {
    pub(crate) fn pool_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: PoolRequest,
    ) -> Handled {
        match request {
            PoolRequest::Create { location, handle_types: _, bytes_max } => {
                let Location::Device(device) = location else { return Err(invalid()) };
                if device.0 >= self.spec.gpus {
                    return Err(CUresult::INVALID_DEVICE.into());
                }
                Ok(Answer::Pool(self.new_pool(session, device, bytes_max, false)).into())
            }
            PoolRequest::Destroy(id) => self.destroy_pool(session, id),
            PoolRequest::Default(device) => Ok(Answer::Pool(self.device_pools(session, device)?.0).into()),
            PoolRequest::Current(device) => Ok(Answer::Pool(self.device_pools(session, device)?.1).into()),
            PoolRequest::SetCurrent { device, pool } => {
                let (default, _) = self.device_pools(session, device)?;
                if self.pool(session, pool)?.device != device {
                    return Err(invalid());
                }
                self.sessions.get_mut(&session).expect("it asks").pools.insert(device, (default, pool));
                Ok(Answer::Done.into())
            }
            PoolRequest::Trim { pool, keep_bytes } => {
                self.pool(session, pool)?;
                self.trim(pool, keep_bytes);
                Ok(Answer::Done.into())
            }
            PoolRequest::GetAttribute { pool, attribute } => {
                let pool = self.pool(session, pool)?;
                let value = match attribute {
                    1..=3 => pool.reuse[attribute as usize],
                    RELEASE_THRESHOLD => pool.threshold,
                    RESERVED_CURRENT => pool.used + pool.kept,
                    RESERVED_HIGH => pool.reserved_high,
                    USED_CURRENT => pool.asked,
                    USED_HIGH => pool.asked_high,
                    _ => return Err(invalid()),
                };
                Ok(Answer::Number(value).into())
            }
            PoolRequest::SetAttribute { pool, attribute, value } => {
                let pool = self.pool_mut(session, pool)?;
                match (attribute, value) {
                    (1..=3, _) => pool.reuse[attribute as usize] = u64::from(value != 0),
                    (RELEASE_THRESHOLD, _) => pool.threshold = value,
                    (RESERVED_HIGH, 0) => pool.reserved_high = pool.used + pool.kept,
                    (USED_HIGH, 0) => pool.asked_high = pool.asked,
                    _ => return Err(invalid()),
                }
                Ok(Answer::Done.into())
            }
            PoolRequest::SetAccess { pool, access } => {
                let pool = self.pool_mut(session, pool)?;
                for (location, access) in access {
                    // A pool's own GPU always has access.
                    if location == Location::Device(pool.device) && access != Access::ReadWrite {
                        return Err(invalid());
                    }
                    pool.access.insert(location, access);
                }
                Ok(Answer::Done.into())
            }
            PoolRequest::GetAccess { pool, location } => {
                let pool = self.pool(session, pool)?;
                let own = location == Location::Device(pool.device);
                let access = if own {
                    Access::ReadWrite
                } else {
                    pool.access.get(&location).copied().unwrap_or_default()
                };
                Ok(Answer::Access(access).into())
            }
            PoolRequest::Alloc { context, stream, pool, bytes } => {
                self.alloc_async(connection, session, context, stream, pool, bytes)
            }
            PoolRequest::Free { context, stream, address } => {
                self.free_async(connection, session, context, stream, address.0)
            }
        }
    }

    fn pool(&self, session: SessionId, id: PoolId) -> Result<&Pool, Refusal> {
        self.pools.get(&id).filter(|pool| pool.session == session).ok_or_else(invalid)
    }

    fn pool_mut(&mut self, session: SessionId, id: PoolId) -> Result<&mut Pool, Refusal> {
        self.pools.get_mut(&id).filter(|pool| pool.session == session).ok_or_else(invalid)
    }

    fn new_pool(&mut self, session: SessionId, device: DeviceId, bytes_max: u64, is_default: bool) -> PoolId {
        let id = PoolId(self.id());
        let pool = Pool {
            session,
            device,
            bytes_max,
            used: 0,
            asked: 0,
            asked_high: 0,
            kept: 0,
            reserved_high: 0,
            threshold: 0,
            reuse: [1; 4],
            access: BTreeMap::new(),
            is_default,
        };
        self.pools.insert(id, pool);
        id
    }

    /// A GPU's default and current pool in this process.
    fn device_pools(&mut self, session: SessionId, device: DeviceId) -> Result<(PoolId, PoolId), Refusal> {
        if device.0 >= self.spec.gpus {
            return Err(CUresult::INVALID_DEVICE.into());
        }
        if let Some(pools) = self.sessions[&session].pools.get(&device) {
            return Ok(*pools);
        }
        let pool = self.new_pool(session, device, 0, true);
        self.sessions.get_mut(&session).expect("it asks").pools.insert(device, (pool, pool));
        Ok((pool, pool))
    }

    fn destroy_pool(&mut self, session: SessionId, id: PoolId) -> Handled {
        let pool = self.pool(session, id)?;
        if pool.is_default || pool.used > 0 {
            return Err(invalid());
        }
        let device = pool.device;
        self.trim(id, 0);
        self.pools.remove(&id);
        let pools = &mut self.sessions.get_mut(&session).expect("it asks").pools;
        if let Some((default, current)) = pools.get_mut(&device)
            && *current == id
        {
            *current = *default;
        }
        Ok(Answer::Done.into())
    }

    /// Gives back what a pool keeps beyond so much.
    fn trim(&mut self, id: PoolId, keep: u64) {
        let pool = self.pools.get_mut(&id).expect("a pool");
        let back = (pool.used + pool.kept).saturating_sub(keep).min(pool.kept);
        pool.kept -= back;
        self.store.physical.give_back(pool.device, back);
    }

    /// A synchronisation: pools give back what they keep beyond their threshold.
    pub(crate) fn trim_pools(&mut self, session: SessionId) {
        let own: Vec<(PoolId, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.session == session && pool.kept > 0)
            .map(|(id, pool)| (*id, pool.threshold))
            .collect();
        for (id, threshold) in own {
            self.trim(id, threshold);
        }
    }

    /// A process is gone, with its pools.
    pub(crate) fn end_pools(&mut self, session: SessionId) {
        let own: Vec<PoolId> =
            self.pools.iter().filter(|(_, pool)| pool.session == session).map(|(id, _)| *id).collect();
        for id in own {
            self.trim(id, 0);
            self.pools.remove(&id);
        }
    }
}
