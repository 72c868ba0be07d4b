//! How long one request of a latency-critical program really takes.

use sched::Span;

use crate::random::Random;
use crate::scenario::Physics;

/// GPU time of a request that takes `nominal` on a GPU that is awake: it varies, and it takes longer on one that dozes.
pub fn request(physics: &Physics, random: &mut Random, nominal: Span, dozes: bool) -> Span {
    let service = random.spread(nominal, physics.jitter);
    if !dozes {
        return service;
    }
    let slow = f64::from(physics.wake_slow.0) / 1e6 * random.exponential();
    let waking = physics.wake + random.span(physics.wake_spread);
    service + waking + Span((nominal.0 as f64 * slow) as u64)
}
