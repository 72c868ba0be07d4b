//! How near the core comes, in several orders of turns.

use crate::optimum::{Judged, of_scenario};
use crate::scenario::builtin;
use crate::scenario::file::Given;

fn judge(name: &str, given: &[(&str, String)]) -> Judged {
    let given: Vec<_> =
        given.iter().map(|(key, value)| Given { key: (*key).into(), value: value.clone() }).collect();
    let (record, judged) = of_scenario(&builtin::find(name, &given).unwrap()).unwrap();
    assert!(record.finished);
    judged
}

#[test]
fn print_them() {
    for seed in 1..4 {
        let seed = ("seed", seed.to_string());
        for name in ["six-fit-three"] {
            let j = judge(name, &[seed.clone()]);
            println!("{name} {seed:?}: {j:?} {:?}", j.ratio());
        }
    }
}
