//! LC mode, for people: when each GPU was latency-critical programs' first, how often that began, and what it took from
//! best-effort ones. Decides nothing.
//!
//! What best-effort programs lose to shorter slices, while they run beside requests, is seen by nobody here.

use super::Daemon;
use sched::{GpuId, Span, TenantId, Time};
use serde_json::json;
use std::collections::BTreeMap;
use wire::LcMode;

/// What the mode took from best-effort programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    held_back: Span,
    freezes: u64,
    switching: Span,
}

/// The mode of one GPU.
#[derive(Debug, Default)]
struct Mode {
    on_since: Option<Time>,
    begun: u64,
    /// Without the time since it began last.
    lasted: Span,
    /// Since when nobody best-effort could run, though one had work.
    held_since: Option<Time>,
    cost: Cost,
    /// What it had cost when it began last.
    cost_before: Cost,
}

/// What changed.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    Begun,
    Over { lasted: Span, cost: Cost },
}

impl Mode {
    /// How it is from now on.
    fn stands(&mut self, now: Time, on: bool, held: bool) -> Option<Changed> {
        if let Some(since) = self.held_since.take() {
            self.cost.held_back += now.since(since);
        }
        self.held_since = held.then_some(now);
        match (self.on_since, on) {
            (None, true) => {
                self.on_since = Some(now);
                self.begun += 1;
                self.cost_before = self.cost;
                Some(Changed::Begun)
            }
            (Some(since), false) => {
                self.on_since = None;
                let lasted = now.since(since);
                self.lasted += lasted;
                Some(Changed::Over { lasted, cost: self.cost.less(self.cost_before) })
            }
            _ => None,
        }
    }

    fn view(&self, now: Time) -> LcMode {
        let up_to_now = |since: Option<Time>| since.map_or(Span::ZERO, |since| now.since(since));
        LcMode {
            on_for_ns: self.on_since.map(|since| now.since(since).0),
            begun: self.begun,
            lasted_ns: (self.lasted + up_to_now(self.on_since)).0,
            held_back_ns: (self.cost.held_back + up_to_now(self.held_since)).0,
            freezes: self.cost.freezes,
            switching_ns: self.cost.switching.0,
        }
    }
}

impl Cost {
    fn less(self, before: Self) -> Self {
        Self {
            held_back: self.held_back.less(before.held_back),
            freezes: self.freezes - before.freezes,
            switching: self.switching.less(before.switching),
        }
    }
}

/// The modes of all GPUs that ever were in it.
#[derive(Debug, Default)]
pub(super) struct LcModes {
    of_gpus: BTreeMap<GpuId, Mode>,
    /// What is heard late was a moment ago: time never counts twice.
    latest: Time,
}

impl LcModes {
    /// How it was so far.
    pub(super) fn of(&self, gpu: GpuId, now: Time) -> LcMode {
        self.of_gpus.get(&gpu).map(|mode| mode.view(now)).unwrap_or_default()
    }
}

impl Daemon {
    /// The core was told what happened at this instant.
    pub(super) fn note_lc_modes(&mut self, now: Time) {
        let now = now.max(self.lc_modes.latest);
        self.lc_modes.latest = now;
        for gpu in (0..).map(GpuId).take(self.executors.len()) {
            let on = self.core.is_critical(gpu);
            if !on && !self.lc_modes.of_gpus.contains_key(&gpu) {
                continue;
            }
            let held = on && self.core.holds_all_back(gpu);
            match self.lc_modes.of_gpus.entry(gpu).or_default().stands(now, on, held) {
                Some(Changed::Begun) => self.events.note("lc_mode_begin", json!({ "gpu": gpu.0 })),
                Some(Changed::Over { lasted, cost }) => {
                    let fields = json!({
                        "gpu": gpu.0,
                        "lasted_ns": lasted.0,
                        "held_back_ns": cost.held_back.0,
                        "freezes": cost.freezes,
                        "switching_ns": cost.switching.0,
                    });
                    self.events.note("lc_mode_end", fields);
                }
                None => {}
            }
        }
    }

    /// A tenant was put on the GPU, or taken off it, which took so long.
    pub(super) fn switched_in_lc_mode(&mut self, tenant: TenantId, gpu: GpuId, goes: bool, took: Span) {
        let best_effort = !self.is_critical(tenant);
        let mode = self.lc_modes.of_gpus.get_mut(&gpu).filter(|mode| mode.on_since.is_some() && best_effort);
        if let Some(mode) = mode {
            mode.cost.freezes += u64::from(goes);
            mode.cost.switching += took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    #[test]
    fn what_a_mode_cost_is_told_at_its_end_and_summed_up() {
        let mut mode = Mode::default();
        assert_eq!(mode.stands(at(0), false, false), None);
        assert_eq!(mode.stands(at(10), true, false), Some(Changed::Begun));
        mode.cost.freezes += 1;
        mode.cost.switching += ms(1);
        assert_eq!(mode.stands(at(20), true, true), None);
        assert_eq!(mode.stands(at(25), true, true), None, "it goes on");
        let seen = mode.view(at(27));
        assert_eq!(
            (seen.on_for_ns, seen.lasted_ns, seen.held_back_ns),
            (Some(17_000_000), 17_000_000, 7_000_000)
        );
        assert_eq!(mode.stands(at(30), true, false), None);
        let cost = Cost { held_back: ms(10), freezes: 1, switching: ms(1) };
        assert_eq!(mode.stands(at(50), false, false), Some(Changed::Over { lasted: ms(40), cost }));
        assert_eq!(mode.stands(at(90), true, true), Some(Changed::Begun));
        let cost = Cost { held_back: ms(5), ..Cost::default() };
        assert_eq!(mode.stands(at(95), false, false), Some(Changed::Over { lasted: ms(5), cost }));
        let all = LcMode {
            on_for_ns: None,
            begun: 2,
            lasted_ns: ms(45).0,
            held_back_ns: ms(15).0,
            freezes: 1,
            switching_ns: ms(1).0,
        };
        assert_eq!(mode.view(at(200)), all);
    }
}
