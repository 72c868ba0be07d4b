//! A device and tenants that only take time, by what was measured on an H200. Sizes are a [`SCALE`]th of what they stand for, and
//! so is the speed of the bus: so times are those of the real sizes.

use crate::device::{Capacity, Device, DeviceError, Lane, Mark, Registrar};
use crate::exchange::patience::driven::Driven;
use crate::exchange::{Gone, Reply, Tenants};
use crate::{HandleKey, Owner};
use blocks::{DeviceKey, Sums};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// So many bytes does one stand for: a block is 64 MiB.
pub(super) const SCALE: u64 = 32;

/// What things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Bytes a second out and in, each alone.
    pub(super) alone: [f64; 2],
    /// The same while both are under way.
    pub(super) both: [f64; 2],
    /// The same while copies out are short ones.
    pub(super) both_briefly: [f64; 2],
    /// The start of a copy.
    pub(super) submit: Duration,
    /// For us: to import and map a handle, and to drop it.
    pub(super) import: Duration,
    pub(super) release: Duration,
    /// For a tenant: to unmap and release a handle; to create, map and export one.
    pub(super) unmap: Duration,
    pub(super) create: Duration,
    /// For a tenant: to import and map a handle.
    pub(super) take: Duration,
    /// For the device: to clear memory that is released, with the engine that copies in; by the GiB.
    pub(super) clear: Duration,
    /// A message, one way, until the other end has read it.
    pub(super) message: Duration,
}

/// An H200, whose lanes share the bus evenly.
pub(super) const EVEN: Costs = Costs {
    alone: [55.2e9, 54.4e9],
    both: [46.5e9, 46.5e9],
    both_briefly: [46.5e9, 46.5e9],
    submit: Duration::from_micros(5),
    import: Duration::from_micros(200),
    release: Duration::from_micros(500),
    unmap: Duration::from_micros(300),
    create: Duration::from_micros(900),
    take: Duration::from_micros(600),
    clear: Duration::ZERO,
    message: Duration::from_micros(60),
};

/// The same as it was seen in turns of two programs: out is faster than in.
pub(super) const UNEVEN: Costs = Costs { both: [51.2e9, 41.5e9], both_briefly: [51.2e9, 41.5e9], ..EVEN };

/// Copies in fall behind those out, but not behind short ones.
pub(super) const LAGGING: Costs = Costs { both: [50.5e9, 46.5e9], both_briefly: [48.3e9, 50.9e9], ..EVEN };

/// What counts as short: 4 MiB.
const BRIEF: f64 = (4 << 20) as f64;

/// What an agent is asked for.
#[derive(Clone, Copy, Debug)]
enum Order {
    Unmap,
    Create,
    Take,
}

#[derive(Debug)]
enum Item {
    /// What is left of a copy, and how long it is.
    Copy(f64, f64),
    /// Clearing of released memory, with its time in seconds.
    Clear(f64),
    Mark(u64),
}

#[derive(Debug, Default)]
struct LaneModel {
    items: VecDeque<Item>,
    marks_set: u64,
    marks_passed: u64,
}

impl LaneModel {
    fn is_busy(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Copy(..)))
    }

    /// Passes marks that nothing is before.
    fn settle(&mut self) {
        while let Some(&Item::Mark(number)) = self.items.front() {
            self.marks_passed = number;
            self.items.pop_front();
        }
    }
}

/// What time has to be known for.
#[derive(Debug)]
struct State {
    costs: Costs,
    now: Duration,
    lanes: [LaneModel; 2],
    /// When each tenant's agent is free again.
    agents: BTreeMap<Owner, Duration>,
    /// Answers on their way.
    answers: Vec<(Duration, Owner, Vec<u64>, Order)>,
    answer: Sender<Reply>,
}

impl State {
    /// Has the bus carry until then.
    fn carry(&mut self, until: Duration) {
        loop {
            self.lanes.iter_mut().for_each(LaneModel::settle);
            let busy = [self.lanes[0].is_busy(), self.lanes[1].is_busy()];
            let is_brief =
                matches!(self.lanes[0].items.front(), Some(Item::Copy(_, bytes)) if *bytes <= BRIEF);
            let rates = match busy == [true; 2] {
                true if is_brief => self.costs.both_briefly,
                true => self.costs.both,
                false => self.costs.alone,
            };
            let left = until.saturating_sub(self.now);
            let ends = |lane: usize| match self.lanes[lane].items.front() {
                Some(Item::Copy(bytes, _)) => Some(Duration::from_secs_f64(bytes / rates[lane])),
                Some(Item::Clear(seconds)) => Some(Duration::from_secs_f64(*seconds)),
                _ => None,
            };
            let Some(step) = [ends(0), ends(1)].into_iter().flatten().min().map(|step| step.min(left)) else {
                break;
            };
            for (lane, rate) in self.lanes.iter_mut().zip(rates) {
                // A nanosecond's worth may be left by rounding.
                let is_over = match lane.items.front_mut() {
                    Some(Item::Copy(bytes, _)) => {
                        *bytes -= rate * step.as_secs_f64();
                        *bytes < 100.0
                    }
                    Some(Item::Clear(seconds)) => {
                        *seconds -= step.as_secs_f64();
                        *seconds < 2e-9
                    }
                    _ => false,
                };
                if is_over {
                    lane.items.pop_front();
                }
            }
            self.now += step;
            if self.now >= until {
                break;
            }
        }
        self.lanes.iter_mut().for_each(LaneModel::settle);
        self.now = self.now.max(until);
    }

    /// Has all happen that is due, and says when the next answer is.
    fn pass(&mut self, now: Duration) -> Option<Duration> {
        self.carry(now);
        self.answers.sort_by_key(|(due, ..)| *due);
        while self.answers.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, owner, handles, order) = self.answers.remove(0);
            let reply = match order {
                Order::Create => {
                    let files = handles.iter().map(|_| a_file()).collect();
                    Reply::Created { owner, handles, files }
                }
                Order::Take => Reply::Taken { owner, handles },
                Order::Unmap => Reply::Unmapped { owner, handles },
            };
            self.answer.send(reply).expect("somebody listens");
        }
        self.answers.first().map(|(due, ..)| *due)
    }
}

pub(super) fn a_file() -> OwnedFd {
    rustix::fs::memfd_create("handle", rustix::fs::MemfdFlags::CLOEXEC).expect("a small file")
}

/// See the module.
pub(super) struct TimedDevice {
    clock: Driven,
    state: Arc<Mutex<State>>,
}

impl TimedDevice {
    pub(super) fn new(costs: Costs, clock: &Driven, answer: Sender<Reply>) -> TimedDevice {
        let state = State {
            costs,
            now: Duration::ZERO,
            lanes: Default::default(),
            agents: BTreeMap::new(),
            answers: Vec::new(),
            answer,
        };
        let state = Arc::new(Mutex::new(state));
        let model = Arc::clone(&state);
        clock.follow(move |now| model.lock().expect("no panic").pass(now));
        TimedDevice { clock: clock.clone(), state }
    }

    pub(super) fn tenants(&self) -> TimedTenants {
        TimedTenants { clock: self.clock.clone(), state: Arc::clone(&self.state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let now = self.clock.time();
        let mut state = self.state.lock().expect("no panic");
        state.carry(now);
        state
    }

    fn spend(&self, of: impl Fn(&Costs) -> Duration) {
        let time = of(&self.state().costs);
        self.clock.spend(time);
    }

    fn copy(&self, lane: Lane, bytes: u64) {
        self.spend(|costs| costs.submit);
        let bytes = (bytes * SCALE) as f64;
        self.state().lanes[lane as usize].items.push_back(Item::Copy(bytes, bytes));
    }
}

impl Device for TimedDevice {
    /// So many bytes.
    type Memory = u64;
    type Target = ();

    fn target(&self, _: &u64) {}

    fn attach(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn import(&mut self, _: OwnedFd, bytes: u64) -> Result<u64, DeviceError> {
        self.spend(|costs| costs.import);
        Ok(bytes)
    }

    fn release(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.spend(|costs| costs.release);
        let mut state = self.state();
        let seconds = state.costs.clear.as_secs_f64() * (bytes * SCALE) as f64 / f64::from(1 << 30);
        if seconds > 0.0 {
            // It is the driver's own, and goes before what waits.
            let items = &mut state.lanes[Lane::In as usize].items;
            let first = items.len().min(1);
            items.insert(first, Item::Clear(seconds));
        }
        Ok(())
    }

    fn twice(&self, bytes: &u64) -> u64 {
        *bytes
    }

    unsafe fn copy_out(&mut self, (): &(), _: u64, _: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        self.copy(Lane::Out, bytes);
        Ok(())
    }

    unsafe fn copy_in(&mut self, (): &(), _: u64, _: *const u8, bytes: u64) -> Result<(), DeviceError> {
        self.copy(Lane::In, bytes);
        Ok(())
    }

    fn zero(&mut self, (): &(), _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn prepare_hashing(&mut self, _: &DeviceKey) -> Result<(), DeviceError> {
        Err(DeviceError::NoHashing)
    }

    fn hash(&mut self, _: &u64) -> Result<Mark, DeviceError> {
        Err(DeviceError::NoHashing)
    }

    fn copy_between(&mut self, lane: Lane, (): &(), (): &(), bytes: u64) -> Result<(), DeviceError> {
        self.copy(lane, bytes);
        Ok(())
    }

    fn hash_some(&mut self, _: &[(&u64, u64)]) -> Result<Mark, DeviceError> {
        Err(DeviceError::NoHashing)
    }

    fn sums(&mut self, _: Mark) -> Result<Vec<Sums>, DeviceError> {
        Err(DeviceError::NoHashing)
    }

    fn mark(&mut self, lane: Lane) -> Result<Mark, DeviceError> {
        let track = &mut self.state().lanes[lane as usize];
        track.marks_set += 1;
        track.items.push_back(Item::Mark(track.marks_set));
        Ok(Mark { lane, number: track.marks_set })
    }

    fn passed(&mut self, mark: Mark) -> Result<bool, DeviceError> {
        Ok(self.state().lanes[mark.lane as usize].marks_passed >= mark.number)
    }

    fn drain(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(Willing)
    }

    fn capacity(&mut self) -> Result<Capacity, DeviceError> {
        Ok(Capacity { free_bytes: 0, total_bytes: 0 })
    }

    fn uuid(&self) -> &str {
        "GPU-00000000-0000-0000-0000-000000000000"
    }

    fn name(&self) -> &str {
        "timed device"
    }
}

struct Willing;

impl Registrar for Willing {
    unsafe fn register(&mut self, _: *mut u8, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn unregister(&mut self, _: *mut u8) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Each has one agent, which does one thing after the other.
pub(super) struct TimedTenants {
    clock: Driven,
    state: Arc<Mutex<State>>,
}

impl TimedTenants {
    fn request(&self, owner: Owner, handles: &[u64], order: Order) {
        let now = self.clock.time();
        let mut state = self.state.lock().expect("no panic");
        let Costs { create, unmap, take, message, .. } = state.costs;
        let each = match order {
            Order::Unmap => unmap,
            Order::Create => create,
            Order::Take => take,
        };
        let agent = state.agents.entry(owner).or_default();
        *agent = (*agent).max(now + message) + each * u32::try_from(handles.len()).expect("a few");
        let due = *agent + message;
        state.answers.push((due, owner, handles.to_vec(), order));
    }
}

impl Tenants for TimedTenants {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.request(owner, handles, Order::Unmap);
        Ok(())
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.request(owner, handles, Order::Create);
        Ok(())
    }

    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone> {
        let handles: Vec<u64> = handles.iter().map(|(handle, _)| *handle).collect();
        self.request(owner, &handles, Order::Take);
        Ok(())
    }
}

/// Handles of a tenant, by their numbers.
pub(super) fn keys(owner: Owner, count: usize) -> Vec<HandleKey> {
    (0..count as u64).map(|handle| HandleKey { owner, handle }).collect()
}
