//! What goes wrong in the middle of a turn.

use super::super::disk::{Fault, On, TestDisk};
use super::super::world::{Event, Twist};
use super::History;
use crate::Owner;
use crate::exchange::Plan;
use crate::fake_device::Operation;
use std::sync::atomic::Ordering::SeqCst;

/// Most turns have more steps than this.
const STEPS: u64 = 80;

/// All but registering, which is over.
const OPERATIONS: [Operation; 9] = [
    Operation::Import,
    Operation::Release,
    Operation::CopyOut,
    Operation::CopyIn,
    Operation::Mark,
    Operation::Passed,
    Operation::Hash,
    Operation::Sums,
    Operation::Zero,
];

const DISK_FAULTS: [(On, Fault); 5] = [
    (On::Write, Fault::Error(libc::ENOSPC)),
    (On::Write, Fault::Error(libc::EIO)),
    (On::Allocate, Fault::Error(libc::ENOSPC)),
    (On::Read, Fault::Error(libc::EIO)),
    (On::Read, Fault::Flip),
];

impl History {
    /// Has something go wrong, by chance. Says what.
    pub(super) fn arm(&mut self, plan: &Plan) -> String {
        let keys: Vec<_> = plan.out.iter().chain(&plan.into).copied().collect();
        let Some(key) = self.one_of(&keys) else { return self.arm_death_of_worker() };
        let event = match self.random.below(3) {
            0 => Event::Frees(key),
            _ => Event::Dies(key.owner),
        };
        let in_requests = 1 + self.random.below(8);
        let request = self.setup().tenants.world().requests + in_requests;
        match self.random.below(16) {
            0..3 => {
                let (operation, nth) = (self.random.below(9) as usize, 1 + self.random.below(4));
                self.setup().mover.device_mut().fail(OPERATIONS[operation], nth);
                format!("{:?} {nth} fails", OPERATIONS[operation])
            }
            what @ 3..7 => {
                let twist = [Twist::Before(event), Twist::After(event), Twist::Fails, Twist::Silent];
                let twist = twist[what as usize - 3];
                self.setup().tenants.world().twist = Some((request, twist));
                format!("{twist:?} at request {in_requests}")
            }
            7..11 => {
                let step = 1 + self.random.below(STEPS);
                let tenants = self.setup().tenants.clone();
                self.fate.at_step(step, move || {
                    let mut world = tenants.world();
                    let is_dead = matches!(event, Event::Dies(owner) if world.dead.contains(&owner));
                    if !is_dead {
                        world.happen(event);
                    }
                });
                format!("{event:?} at step {step}")
            }
            11..13 if self.setup().disk.is_some() => {
                let (fault, nth) = (DISK_FAULTS[self.random.below(5) as usize], self.random.below(2));
                if let Some(disk) = &self.setup().disk {
                    disk.fail(fault.0, nth, fault.1);
                }
                format!("{fault:?} after {nth}")
            }
            _ => self.arm_death_of_worker(),
        }
    }

    fn arm_death_of_worker(&mut self) -> String {
        let steps = 1 + self.random.below(STEPS);
        self.fate.dies_at.store(self.fate.steps.load(SeqCst) + steps, SeqCst);
        format!("the worker dies at step {steps}")
    }

    /// By chance somebody who was on the move dies when the next worker asks for the first thing.
    pub(super) fn arm_adoption(&mut self) {
        let moving = self.tenants.iter().filter(|(_, tenant)| !tenant.committed);
        let moving: Vec<Owner> = moving.map(|(&owner, _)| owner).collect();
        let (is_armed, owner) = (self.random.below(2) == 0, self.one_of(&moving));
        if let Some(owner) = owner.filter(|_| is_armed) {
            let mut world = self.setup().tenants.world();
            world.twist = Some((world.requests + 1, Twist::Before(Event::Dies(owner))));
        }
    }

    /// How much is to go wrong: with the device, with the disk, with a tenant.
    pub(super) fn armed(&mut self) -> [u64; 3] {
        let setup = self.setup();
        let disk = setup.disk.as_ref().map_or(0, TestDisk::faults_left);
        let twist = setup.tenants.world().twist;
        let tenant = matches!(twist, Some((_, Twist::Fails | Twist::Silent)));
        [setup.mover.device().faults_left(), disk, u64::from(tenant)]
    }

    /// What has not gone wrong will not.
    pub(super) fn disarm(&mut self, armed: [u64; 3]) {
        let left = self.armed();
        self.counts.device_faults += armed[0] - left[0];
        self.counts.disk_faults += armed[1] - left[1];
        self.counts.tenant_faults += armed[2] - left[2];
        self.fate.forget();
        let setup = self.setup();
        setup.mover.device_mut().heal();
        setup.tenants.world().twist = None;
        if let Some(disk) = &setup.disk {
            disk.heal();
        }
    }
}
