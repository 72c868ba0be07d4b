//! Timelines of daemons, as few lines as show something.

use crate::optimum::events::{EventsError, Window, judge};
use crate::optimum::{Judged, OptimumError};

/// Two tenants of 10 with room for 15. 5 have to go for each turn; at times 6 do.
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
{"t_ns":16,"event":"turn_end","tenant":1,"ran_ns":1}
{"t_ns":17,"event":"move_begin","out":[{"tenant":1,"bytes":6,"handles":1}],"into":[{"tenant":2,"bytes":6,"handles":1}]}
{"t_ns":18,"event":"move_end","bytes_out":6,"bytes_in":6,"failed":0}
{"t_ns":19,"event":"away","tenant":1,"away_bytes":6,"resident_bytes":4}
{"t_ns":20,"event":"resident","tenant":2}
{"t_ns":21,"event":"turn_begin","tenant":2,"turn":2}
{"t_ns":22,"event":"turn_end","tenant":2,"ran_ns":1}
{"t_ns":23,"event":"move_begin","out":[{"tenant":2,"bytes":5,"handles":1}],"into":[{"tenant":1,"bytes":6,"handles":1}]}
{"t_ns":24,"event":"move_end","bytes_out":5,"bytes_in":6,"failed":0}
{"t_ns":25,"event":"away","tenant":2,"away_bytes":5,"resident_bytes":5}
{"t_ns":26,"event":"turn_begin","tenant":1,"turn":3}
{"t_ns":27,"event":"left","tenant":1}
{"t_ns":28,"event":"move_end","bytes_out":0,"bytes_in":5,"failed":0}
{"t_ns":29,"event":"resident","tenant":2}
{"t_ns":30,"event":"turn_begin","tenant":2,"turn":3}
"#;

fn figures(judged: &Judged) -> (u64, u64, usize) {
    (judged.moved.0, judged.least.bytes.0, judged.steps)
}

/// When both have been moved once: 6 of the second are away.
const LATER: Window = Window { from_ns: 15, to_ns: u64::MAX };

#[test]
fn moves_are_put_beside_the_least() {
    let judged = judge(TWO, 15, LATER).unwrap();
    // 6 have to come in; then, twice, 5 go and come back.
    assert_eq!(figures(&judged), (28, 26, 4));
    assert!(!judged.least.exact);
    assert_eq!(judged.ratio(), Some(28.0 / 26.0));
    let judged = judge(TWO, 15, Window { to_ns: 21, ..LATER }).unwrap();
    assert_eq!(figures(&judged), (12, 11, 2), "what goes does not come back in this time");
    let judged = judge(TWO, 20, Window { to_ns: 15, ..LATER }).unwrap();
    assert_eq!((figures(&judged), judged.ratio()), ((0, 0, 1), None));
}

/// Nobody knows what they had before some of it went out.
#[test]
fn what_goes_the_first_time_does_not_count() {
    let judged = judge(TWO, 15, Window::ALL).unwrap();
    assert_eq!(figures(&judged), (5 + 11 + 28, 5 + 26, 7));
}

/// The second tenant has 4 more when it is told of the last time, or 4 less.
#[test]
fn who_grows_or_shrinks_counts_as_it_is() {
    let told = |resident: u64| {
        TWO.replace(
            r#":5,"resident_bytes":5}
{"t_ns":26"#,
            &format!(":5,\"resident_bytes\":{resident}}}\n{{\"t_ns\":26"),
        )
    };
    assert_eq!(figures(&judge(&told(9), 19, LATER).unwrap()), (28, 6 + 2 + 2, 4));
    assert_eq!(figures(&judge(&told(1), 15, LATER).unwrap()), (28, 6 + 10, 4));
}

/// Beside whoever has the turn: both are needed at once, and do not fit.
#[test]
fn who_runs_beside_the_owner_is_needed_with_it() {
    let beside = |owner: u64| {
        let text = TWO.replace(
            "{\"t_ns\":22,\"event\":\"turn_end\",\"tenant\":2,\"ran_ns\":1}\n",
            &format!("{{\"t_ns\":22,\"event\":\"turn_end\",\"tenant\":{owner}}}\n{{\"t_ns\":22,\"event\":\"thaw\",\"tenant\":1}}\n"),
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
