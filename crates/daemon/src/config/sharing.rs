//! Settings for people become settings of the core.

use super::{ConfigError, OnOff, Policy, Settings};
use sched::{PolicyKind, Ratio};
use wire::quantity::{Share, Span};
use wire::{OVERSIZE_ALL, Oversize};

/// Tenants at a time: as many as fit into one listing with the longest names.
pub const TENANTS_MAX: u32 = 128;

impl Settings {
    /// A length that is fixed needs no bounds.
    pub(super) fn check_turn(&self, place: &str) -> Result<(), ConfigError> {
        let bounds = [("turn_min", self.turn_min), ("turn_max", self.turn_max)];
        match bounds.into_iter().find(|(_, bound)| bound.is_some()) {
            Some((key, _)) if self.turn.is_some() => Err(ConfigError::TurnTwice { place: place.into(), key }),
            _ => Ok(()),
        }
    }

    pub(super) fn jitter(&self) -> Result<f64, ConfigError> {
        let jitter = self.turn_jitter.unwrap_or(0.0);
        match (0.0..=1.0).contains(&jitter) {
            true => Ok(jitter),
            false => Err(out_of_range("turn_jitter", jitter, "between 0 and 1")),
        }
    }

    /// What the core is to know, the rest by its defaults.
    pub(super) fn sharing(&self) -> Result<sched::Settings, ConfigError> {
        let usual = sched::Settings::default();
        let turn_min = self.turn.or(self.turn_min).map_or(usual.turn_min, in_core);
        let turn_max = self.turn.or(self.turn_max).map_or(usual.turn_max, in_core);
        if turn_min > turn_max {
            let allowed = format!("at most turn_max, which is {turn_max}");
            let value = self.turn_min.map_or_else(|| turn_min.to_string(), |span| span.to_string());
            return Err(out_of_range("turn_min", value, &allowed));
        }
        if let Some(count) = self.tenants_max.filter(|count| !(1..=TENANTS_MAX).contains(count)) {
            return Err(out_of_range("tenants_max", count, &format!("between 1 and {TENANTS_MAX}")));
        }
        let below_all = |share: Ratio| share < Ratio::ONE;
        let at_most_all = |share: Ratio| share <= Ratio::ONE;
        let at_least_all = |share: Ratio| share >= Ratio::ONE;
        Ok(sched::Settings {
            policy: self.policy.map_or(usual.policy, Policy::in_core),
            turn_min,
            turn_max,
            moving_share: share("moving_share", self.moving_share, below_all, "less than 100%")?
                .unwrap_or(usual.moving_share),
            gap_max: self.gap_max.map_or(usual.gap_max, in_core),
            prefetch: self.prefetch.map_or(usual.prefetch, |prefetch| prefetch == OnOff::On),
            headroom: self.headroom.map_or(usual.headroom, |bytes| sched::Bytes(bytes.0)),
            overcommit_max: share("overcommit_max", self.overcommit_max, at_least_all, "at least 100%")?
                .unwrap_or(usual.overcommit_max),
            host_max: match self.oversize_max {
                Some(Oversize(OVERSIZE_ALL)) => {
                    return Err(out_of_range("oversize_max", "all", "a size, as 64GiB, or none"));
                }
                Some(Oversize(bytes)) => sched::Bytes(bytes),
                // The worker looks what the machine has.
                None => usual.host_max,
            },
            tenants_max: self.tenants_max.unwrap_or(usual.tenants_max.min(TENANTS_MAX)),
            be_guarantee: share("be_guarantee", self.be_guarantee, at_most_all, "at most 100%")?
                .unwrap_or(usual.be_guarantee),
            favour: self.favour.map_or(usual.favour, Into::into),
            thaw_ahead: self.thaw_ahead.map_or(usual.thaw_ahead, |ahead| ahead == OnOff::On),
            ageing: self.ageing.map_or(usual.ageing, in_core),
            handle_max: sched::Bytes(wire::HANDLE_BYTES_MAX),
            // The driver's tables grow by such a piece while a program takes memory, and NVML tells when all is taken.
            context_growth: sched::Bytes(wire::BLOCK_BYTES),
            ..usual
        })
    }
}

impl Policy {
    fn in_core(self) -> PolicyKind {
        match self {
            Self::Fair => PolicyKind::Fair,
            Self::Priority => PolicyKind::Priority,
            Self::Deadline => PolicyKind::Deadline,
            Self::Serial => PolicyKind::Serial,
        }
    }
}

/// A length of time as the core counts it.
fn in_core(span: Span) -> sched::Span {
    sched::Span(span.nanos())
}

fn share(
    key: &'static str,
    given: Option<Share>,
    fits: impl Fn(Ratio) -> bool,
    allowed: &str,
) -> Result<Option<Ratio>, ConfigError> {
    match given {
        Some(share) if !fits(Ratio(share.millionths())) => Err(out_of_range(key, share, allowed)),
        given => Ok(given.map(|share| Ratio(share.millionths()))),
    }
}

fn out_of_range(key: &'static str, value: impl ToString, allowed: &str) -> ConfigError {
    ConfigError::OutOfRange { place: String::new(), key, value: value.to_string(), allowed: allowed.into() }
}
