//! One tenant's time: stretch by stretch where they can be seen, else cut into columns.

use crate::record::{Record, Stretch, What};
use sched::{Span, TenantId, Time};

/// A column is divided into this many parts from bottom to top.
pub(super) const LEVELS: u8 = 8;
/// In the order in which they are stacked, the most interesting at the bottom.
const STACK: [What; 5] = [What::Ran, What::MovedIn, What::MovedOut, What::Waited, What::Idle];

/// So many stretches are drawn one by one, however few the columns.
const ONE_BY_ONE_MIN: usize = 60;
/// What is shorter, of the lane's whole width, is drawn as long as this: a move matters also where it is quick.
const SEEN_MIN: f64 = 0.0015;

/// One tenant's time.
pub(super) struct Lane {
    boxes: Vec<(What, Vec<Filled>)>,
    sums: [Span; STACK.len()],
    gpu: Option<u16>,
}

/// A part of the lane that is filled with one thing: from and to in columns, low and high in levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Filled {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) low: u8,
    pub(super) high: u8,
}

impl Lane {
    pub(super) fn of(record: &Record, tenant: TenantId, until: Span, columns: usize) -> Self {
        let all: Vec<&Stretch> = record.stretches.iter().filter(|stretch| stretch.tenant == tenant).collect();
        let mut sums = [Span::ZERO; STACK.len()];
        for stretch in &all {
            sums[place(stretch.what)] += stretch.end.since(stretch.begin);
        }
        let seen: Vec<&Stretch> = all.iter().copied().filter(|stretch| stretch.begin.0 < until.0).collect();
        let boxes = if seen.len() <= columns.max(ONE_BY_ONE_MIN) {
            one_by_one(&seen, until, columns)
        } else {
            by_columns(&seen, until, columns)
        };
        Self { boxes, sums, gpu: all.first().map(|stretch| stretch.gpu) }
    }

    /// Where it was first.
    pub(super) fn gpu(&self) -> Option<u16> {
        self.gpu
    }

    /// How long it did what, in words.
    pub(super) fn told(&self) -> String {
        let words = ["ran", "moved in", "moved out", "waited", "idle"];
        let parts = words.iter().zip(self.sums).filter(|(_, sum)| *sum > Span::ZERO);
        parts.map(|(word, sum)| format!("{word} {sum}")).collect::<Vec<_>>().join(", ")
    }

    /// What to fill with what, in the order in which it is drawn.
    pub(super) fn boxes(&self) -> &[(What, Vec<Filled>)] {
        &self.boxes
    }
}

/// Each stretch as it was, moves last so that nothing hides them.
fn one_by_one(stretches: &[&Stretch], until: Span, columns: usize) -> Vec<(What, Vec<Filled>)> {
    let column = |time: Time| time.0.min(until.0) as f64 / until.0.max(1) as f64 * columns as f64;
    let mut all = Vec::new();
    for what in [What::Idle, What::Waited, What::Ran, What::MovedOut, What::MovedIn] {
        let mut boxes: Vec<Filled> = Vec::new();
        for stretch in stretches.iter().filter(|stretch| stretch.what == what) {
            let from = column(stretch.begin);
            let to = column(stretch.end).max((from + SEEN_MIN * columns as f64).min(columns as f64));
            match boxes.last_mut() {
                Some(last) if last.to >= from => last.to = last.to.max(to),
                _ => boxes.push(Filled { from, to, low: 0, high: LEVELS }),
            }
        }
        if !boxes.is_empty() {
            all.push((what, boxes));
        }
    }
    all
}

/// What a tenant did in each column by its share, with columns that look the same as one box.
fn by_columns(stretches: &[&Stretch], until: Span, columns: usize) -> Vec<(What, Vec<Filled>)> {
    let width = until.0.div_ceil(columns as u64).max(1);
    let mut times = vec![[0u64; STACK.len()]; columns];
    for stretch in stretches {
        let end = stretch.end.0.min(until.0);
        let mut at = stretch.begin.0;
        while at < end {
            let border = ((at / width + 1) * width).min(end);
            times[(at / width) as usize][place(stretch.what)] += border - at;
            at = border;
        }
    }
    let filled: Vec<_> = times.into_iter().map(|times| levels(times, width)).collect();
    let mut all = Vec::new();
    for (place, what) in STACK.into_iter().enumerate() {
        let mut boxes: Vec<Filled> = Vec::new();
        for (index, levels) in filled.iter().enumerate() {
            let low: u8 = levels[..place].iter().sum();
            let high = low + levels[place];
            if high == low {
                continue;
            }
            let from = index as f64;
            match boxes.last_mut() {
                Some(last) if last.to == from && (last.low, last.high) == (low, high) => last.to += 1.0,
                _ => boxes.push(Filled { from, to: from + 1.0, low, high }),
            }
        }
        if !boxes.is_empty() {
            all.push((what, boxes));
        }
    }
    all
}

fn place(what: What) -> usize {
    match what {
        What::Ran => 0,
        What::MovedIn => 1,
        What::MovedOut => 2,
        What::Waited => 3,
        What::Idle => 4,
    }
}

/// Shares of a column in whole parts. Running and moving are seen however short they were, waiting and idling from a
/// tenth of the column; the largest gives or takes what is over.
fn levels(times: [u64; STACK.len()], width: u64) -> [u8; STACK.len()] {
    let sum: u64 = times.iter().sum();
    let mut levels = [0u8; STACK.len()];
    // Less than a tenth of a column is a border between two, not a thing of its own.
    if sum * 10 < width {
        return levels;
    }
    for (place, time) in times.into_iter().enumerate() {
        let least = if matches!(STACK[place], What::Waited | What::Idle) { sum.div_ceil(10) } else { 1 };
        if time >= least {
            levels[place] = ((time * u64::from(LEVELS) + sum / 2) / sum).max(1) as u8;
        }
    }
    let largest =
        (0..levels.len()).max_by_key(|&place| (times[place], std::cmp::Reverse(place))).unwrap_or(0);
    let others: u8 = levels.iter().sum::<u8>() - levels[largest];
    levels[largest] = LEVELS.saturating_sub(others);
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Span = Span(1_000);

    fn stretches(all: &[(What, u64, u64)]) -> Vec<Stretch> {
        let stretch = |&(what, begin, end): &(What, u64, u64)| Stretch {
            tenant: TenantId(1),
            gpu: 3,
            what,
            begin: Time(begin),
            end: Time(end),
        };
        all.iter().map(stretch).collect()
    }

    fn columns(all: &[(What, u64, u64)]) -> Vec<(What, Vec<Filled>)> {
        let all = stretches(all);
        by_columns(&all.iter().collect::<Vec<_>>(), UNTIL, 10)
    }

    fn filled(from: f64, to: f64, low: u8, high: u8) -> Filled {
        Filled { from, to, low, high }
    }

    #[test]
    fn few_stretches_are_drawn_as_they_were() {
        let all = stretches(&[(What::Ran, 0, 450), (What::MovedOut, 450, 451), (What::Waited, 451, 5_000)]);
        let lane = Lane::of(&Record { stretches: all, ..Record::default() }, TenantId(1), UNTIL, 10);
        assert_eq!(
            lane.boxes(),
            [
                (What::Waited, vec![filled(4.51, 10.0, 0, LEVELS)]),
                (What::Ran, vec![filled(0.0, 4.5, 0, LEVELS)]),
                (What::MovedOut, vec![filled(4.5, 4.515, 0, LEVELS)]),
            ]
        );
        assert_eq!(lane.gpu(), Some(3));
        assert_eq!(lane.told(), "ran 0.5 us, moved out 0.0 us, waited 4.5 us");
    }

    #[test]
    fn many_become_columns() {
        let all: Vec<_> =
            (0..200).map(|i| (if i % 2 == 0 { What::Ran } else { What::Waited }, i * 5, i * 5 + 5)).collect();
        let record = Record { stretches: stretches(&all), ..Record::default() };
        let lane = Lane::of(&record, TenantId(1), UNTIL, 10);
        assert_eq!(lane.boxes()[0], (What::Ran, vec![filled(0.0, 10.0, 0, 4)]));
        assert_eq!(lane.boxes()[1], (What::Waited, vec![filled(0.0, 10.0, 4, 8)]));
    }

    #[test]
    fn equal_columns_become_one_box() {
        assert_eq!(
            columns(&[(What::Ran, 0, 400), (What::Waited, 400, 1_000)]),
            [
                (What::Ran, vec![filled(0.0, 4.0, 0, LEVELS)]),
                (What::Waited, vec![filled(4.0, 10.0, 0, LEVELS)]),
            ]
        );
    }

    #[test]
    fn a_column_of_several_things_is_stacked_by_their_shares() {
        assert_eq!(
            columns(&[(What::Ran, 0, 50), (What::Waited, 50, 75), (What::MovedOut, 75, 100)]),
            [
                (What::Ran, vec![filled(0.0, 1.0, 0, 4)]),
                (What::MovedOut, vec![filled(0.0, 1.0, 4, 6)]),
                (What::Waited, vec![filled(0.0, 1.0, 6, 8)]),
            ]
        );
    }

    #[test]
    fn columns_are_always_full_or_empty() {
        for times in
            [[1, 1, 1, 1, 1], [96, 1, 1, 1, 1], [33, 33, 34, 0, 0], [50, 0, 0, 50, 0], [0, 11, 11, 11, 67]]
        {
            assert_eq!(levels(times, 100).iter().sum::<u8>() % LEVELS, 0, "{times:?}");
        }
        assert_eq!(levels([9, 0, 0, 0, 0], 100), [0; 5]);
    }

    #[test]
    fn what_comes_after_the_end_is_cut() {
        assert_eq!(columns(&[(What::Ran, 950, 5_000)]), [(What::Ran, vec![filled(9.0, 10.0, 0, LEVELS)])]);
    }
}
