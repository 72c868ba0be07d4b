//! Timelines of daemons, as few lines as show something.

use crate::optimum::events::{EventsError, Window, judge};
use crate::optimum::{Judged, OptimumError};

/// Two tenants of 10 with room for 15. For the second one's first turn 5 of the first one go out, which have to; then 6 of
/// the second for the first, and 5 would do.
const TWO: &str = r#"
{"t_ns":1,"event":"joined","tenant":1,"gpu":0}
{"t_ns":2,"event":"joined","tenant":2,"gpu":0}
{"t_ns":3,"event":"thaw","tenant":1,"took_ns":1}
{"t_ns":4,"event":"turn_begin","tenant":1,"turn":1}
{"t_ns":5,"event":"turn_end","tenant":1,"ran_ns":1}
{"t_ns":6,"event":"move_begin","out":[{"tenant":1,"bytes":5,"handles":1}],"into":[]}
{"t_ns":7,"event":"move_end","bytes_out":5,"bytes_in":0,"failed":0}
{"t_ns":8,"event":"away","tenant":1,"away_bytes":5,"resident_bytes":5}
{"t_ns":9,"event":"turn_begin","tenant":2,"turn":1}
{"t_ns":10,"event":"turn_end","tenant":2,"ran_ns":1}
{"t_ns":11,"event":"move_begin","out":[{"tenant":2,"bytes":6,"handles":1}],"into":[{"tenant":1,"bytes":5,"handles":1}]}
{"t_ns":12,"event":"move_end","bytes_out":6,"bytes_in":5,"failed":0}
{"t_ns":13,"event":"away","tenant":2,"away_bytes":6,"resident_bytes":4}
{"t_ns":14,"event":"resident","tenant":1}
{"t_ns":15,"event":"turn_begin","tenant":1,"turn":2}
{"t_ns":16,"event":"left","tenant":1}
{"t_ns":17,"event":"move_end","bytes_out":0,"bytes_in":6,"failed":0}
{"t_ns":18,"event":"resident","tenant":2}
{"t_ns":19,"event":"turn_begin","tenant":2,"turn":2}
"#;

fn figures(judged: &Judged) -> (u64, u64, usize) {
    (judged.moved.0, judged.least.bytes.0, judged.steps)
}

/// From the second turn on, when 5 of the first tenant are away.
const LATER: Window = Window { from_ns: 9, to_ns: u64::MAX };

#[test]
fn moves_are_put_beside_the_least() {
    let judged = judge(TWO, 15, LATER).unwrap();
    // 5 of the first come in, and 5 of the second, not 6, go and come back.
    assert_eq!(figures(&judged), (17, 15, 3));
    assert!(!judged.least.exact);
    assert_eq!(judged.ratio(), Some(17.0 / 15.0));
    let judged = judge(TWO, 15, Window { to_ns: 15, ..LATER }).unwrap();
    assert_eq!(figures(&judged), (11, 10, 2), "what goes does not come back in this time");
    let judged = judge(TWO, 20, Window { to_ns: 10, ..LATER }).unwrap();
    assert_eq!((figures(&judged), judged.ratio()), ((0, 0, 1), None));
}

/// Nobody knows what they had before some of it went out: both count from their first move on, and only come in.
#[test]
fn who_comes_later_counts_when_something_is_known() {
    let judged = judge(TWO, 15, Window::ALL).unwrap();
    assert_eq!(figures(&judged), (22, 5 + 6, 5));
}

/// Beside whoever has the turn: both are needed at once, and do not fit.
#[test]
fn who_runs_beside_the_owner_is_needed_with_it() {
    let beside = |owner: u64| {
        let text = TWO.replace(
            "{\"t_ns\":10,\"event\":\"turn_end\",\"tenant\":2,\"ran_ns\":1}\n",
            &format!("{{\"t_ns\":10,\"event\":\"turn_end\",\"tenant\":{owner}}}\n{{\"t_ns\":10,\"event\":\"thaw\",\"tenant\":1}}\n"),
        );
        judge(&text, 15, LATER)
    };
    assert!(beside(2).is_ok(), "its turn was over");
    let said = beside(7).unwrap_err();
    assert!(matches!(said, EventsError::Optimum(OptimumError::DoesNotFit { .. })), "{said}");
}

#[test]
fn what_cannot_be_judged_is_said() {
    let said = |text: &str, room| judge(text, room, LATER).unwrap_err().to_string();
    assert!(said(TWO, 14).contains("on the device at once"), "{}", said(TWO, 14));
    assert!(said("{\"t_ns\":1}", 1).starts_with("line 1 is no event"));
    assert!(said("\n{}", 1).starts_with("line 2 is no event"));
    assert!(said("", 1).contains("nobody had a turn"));
    let two = TWO.replace("\"tenant\":2,\"gpu\":0", "\"tenant\":2,\"gpu\":1");
    assert!(said(&two, 15).contains("GPUs 0 and 1"), "{}", said(&two, 15));
}
