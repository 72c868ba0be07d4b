//! What came of the demo: figures that were measured in it, for people and for scripts.

use super::stage::{GPU_MIB, PROGRAM_MIB, time_of};
use super::timeline::{LEGEND, Timeline};
use crate::columns::{Side, columns, hanging};
use serde::Serialize;
use std::time::Duration;

/// Rises when a key changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// Starting programs takes a little, too; with more than this a CPU is late.
const LATE_FROM: f64 = 1.25;

/// One way to run all programs.
pub(super) struct Act {
    pub(super) timeline: Timeline,
    /// From the start of the first to the end of the last.
    pub(super) took: Duration,
    pub(super) programs: Vec<Ended>,
}

/// A program that came to its end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) steps: u64,
    pub(super) wrong: u64,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema_version: u32,
    gpu: String,
    tenants: usize,
    /// Of each.
    footprint_bytes: u64,
    capacity_bytes: u64,
    serial_ns: u64,
    rota_ns: u64,
    ratio: f64,
    turn_gap_ns_max: u64,
    verified: bool,
    moved_bytes: u64,
    moves: usize,
    /// What the GPU had to do, by the costs that it is to have: `serial_ns` is near this where the CPU behind it keeps up.
    work_ns: u64,
    /// How long the turns were in which it did that, all together.
    turns_ns: u64,
    programs: Vec<OfProgram>,
}

/// One program under rota.
#[derive(Debug, Serialize)]
struct OfProgram {
    name: String,
    turns: usize,
    steps: u64,
    wrong: u64,
}

impl Report {
    /// Of one act natively and one under rota, in which every program had `steps` to do.
    pub(super) fn of(gpu: String, serial: &Act, rota: &Act, steps: u64) -> Self {
        let right = |program: &Ended| program.steps == steps && program.wrong == 0;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let of_program = |program: &Ended| OfProgram {
            name: program.name.clone(),
            turns: rota.timeline.turns_of(&program.name),
            steps: program.steps,
            wrong: program.wrong,
        };
        Self {
            schema_version: SCHEMA_VERSION,
            gpu,
            tenants: rota.programs.len(),
            footprint_bytes: PROGRAM_MIB << 20,
            capacity_bytes: GPU_MIB << 20,
            serial_ns: nanos(serial.took),
            rota_ns: nanos(rota.took),
            ratio: rota.took.as_secs_f64() / serial.took.as_secs_f64(),
            turn_gap_ns_max: nanos(rota.timeline.gap_max()),
            verified: serial.programs.iter().chain(&rota.programs).all(right),
            moved_bytes: rota.timeline.moved_bytes,
            moves: rota.timeline.moves,
            work_ns: nanos(time_of(steps)) * serial.programs.len() as u64,
            turns_ns: nanos(rota.timeline.ran()),
            programs: rota.programs.iter().map(of_program).collect(),
        }
    }

    /// Every program did all its steps, natively and under rota, and found every byte right.
    pub(super) fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether the CPU could not keep up, so that the times are not the virtual GPU's.
    fn is_late(&self) -> bool {
        self.serial_ns.max(self.turns_ns) as f64 > self.work_ns as f64 * LATE_FROM
    }

    /// For people.
    pub(super) fn table(&self, width: usize) -> String {
        let seconds = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
        let turns =
            self.programs.iter().map(|program| program.turns.to_string()).collect::<Vec<_>>().join(", ");
        let verified = match self.verified {
            true => "yes: every program found every byte right in every step, natively and under rota",
            false => "NO: some bytes were wrong, or steps are missing",
        };
        let late = format!(
            "the CPU was too busy to keep the virtual GPU on time: {} of work took {} without rota and turns of {} under \
             it; so this ratio says little of rota",
            seconds(self.work_ns),
            seconds(self.serial_ns),
            seconds(self.turns_ns)
        );
        let rows = [
            ("one after the other", seconds(self.serial_ns)),
            ("by turns, under rota", seconds(self.rota_ns)),
            (
                "ratio",
                format!("{:.3}{}", self.ratio, if self.is_late() { " (the CPU was late)" } else { "" }),
            ),
            ("longest gap", format!("{} between two turns of a program", seconds(self.turn_gap_ns_max))),
            ("turns", turns),
            ("moved", format!("{} MiB in {} moves", self.moved_bytes >> 20, self.moves)),
            ("verified", verified.to_owned()),
            ("late", late),
        ];
        let rows = &rows[..rows.len() - usize::from(!self.is_late())];
        let indent = rows.iter().map(|row| row.0.len()).max().unwrap_or_default() + crate::columns::GAP.len();
        let cells =
            |(name, value): &(&str, String)| [String::from(*name), hanging(value, indent, Some(width))];
        columns(&[Side::Left, Side::Left], &rows.iter().map(cells).collect::<Vec<_>>())
    }
}

/// Who ran when, both ways to the same scale.
pub(super) fn timelines(serial: &Act, rota: &Act, width: usize) -> String {
    let whole = serial.timeline.length().max(rota.timeline.length());
    let seconds = |act: &Act| format!("{:.1} s", act.took.as_secs_f64());
    let (serial_took, rota_took) = (seconds(serial), seconds(rota));
    let [serial, rota] = [serial, rota].map(|act| act.timeline.draw(width, whole));
    format!(
        "Who ran when, one after the other ({serial_took})\n{serial}\n\
         and by turns ({rota_took})   {LEGEND}\n{rota}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(seconds: u64, wrong: u64, steps: u64) -> Act {
        let name = "ada".to_owned();
        let runs = [(name.clone(), Duration::ZERO, Duration::from_secs(seconds))];
        Act {
            timeline: Timeline::of_runs(runs),
            took: Duration::from_secs(seconds),
            programs: vec![Ended { name, steps, wrong }],
        }
    }

    #[test]
    fn a_wrong_byte_or_a_missing_step_on_either_side_is_not_verified() {
        let verified = |serial, rota| Report::of("gpu".into(), &serial, &rota, 7).is_verified();
        assert!(verified(act(4, 0, 7), act(5, 0, 7)));
        assert!(!verified(act(4, 1, 7), act(5, 0, 7)));
        assert!(!verified(act(4, 0, 7), act(5, 1, 7)));
        assert!(!verified(act(4, 0, 7), act(5, 0, 6)));
        let report = Report::of("gpu".into(), &act(4, 0, 7), &act(5, 1, 7), 7);
        assert!(report.table(80).contains("verified              NO: "), "{}", report.table(80));
    }

    #[test]
    fn a_cpu_that_is_late_is_told_of() {
        let is_late = |serial, rota| {
            let report = Report::of("gpu".into(), &act(serial, 0, 7), &act(rota, 0, 7), 7);
            let table = report.table(80);
            assert_eq!(table.contains("\nlate "), table.contains("(the CPU was late)"), "{table}");
            table.contains("\nlate ")
        };
        // Seven steps are 2.6 s of work.
        assert!(!is_late(3, 3) && is_late(4, 3) && is_late(3, 4));
    }

    #[test]
    fn scripts_find_the_keys_that_they_were_promised() {
        let report = Report::of("gpu".into(), &act(4, 0, 7), &act(5, 0, 7), 7);
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value["schema_version"], 1);
        assert_eq!(value["gpu"], "gpu");
        assert_eq!(value["tenants"], 1);
        assert_eq!(value["footprint_bytes"], 120 << 20);
        assert_eq!(value["capacity_bytes"], 160 << 20);
        assert_eq!(value["serial_ns"], 4_000_000_000_u64);
        assert_eq!(value["rota_ns"], 5_000_000_000_u64);
        assert_eq!(value["ratio"], 1.25);
        assert_eq!(value["turn_gap_ns_max"], 0);
        assert_eq!(value["verified"], true);
        assert_eq!(value["programs"][0]["turns"], 1);
    }
}
