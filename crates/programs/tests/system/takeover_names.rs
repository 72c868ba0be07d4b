//! Memory that programs share by name outlives the worker: who has it open keeps it, and who comes later finds it by the same
//! name.

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until, until_counted};

const MIB: u64 = 1 << 20;

#[test]
fn a_name_means_the_same_after_the_worker_was_replaced() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--turn", "20ms"] });
    let (large, small) = (stage.path("large"), stage.path("small"));
    let mut owner = Puppet::start(&stage, "owner", &[]);
    let mut opener = Puppet::start(&stage, "opener", &[]);
    owner.does(&format!("share {} 512 7", small.display()));
    owner.does(&format!("share {} {} 1", large.display(), 4 * MIB));
    opener.does(&format!("open {}", small.display()));
    opener.does("see-opened 7");
    opener.does(&format!("open {}", large.display()));
    opener.does("see-opened 1");
    owner.does("keep 16");
    for round in 0..3_u64 {
        let before = stage.status();
        assert!(stage.kill_worker());
        // Nobody waits for the owner to be back: the name is asked for at once.
        let mut late = Puppet::start(&stage, &format!("late{round}"), &[]);
        late.does(&format!("open {}", large.display()));
        owner.does(&format!("fill-shared {}", 20 + round));
        late.does(&format!("see-opened {}", 20 + round));
        opener.does(&format!("see-opened {}", 20 + round));
        opener.does(&format!("fill-opened {}", 40 + round));
        owner.does(&format!("see-shared {}", 40 + round));
        assert_eq!(stage.status().worker_restarts, before.worker_restarts + 1);
        late.does("close");
        late.end();
    }
    // What is shared stays where it is, and the rest goes for a third one.
    let third = stage.worker(0, "third", &["--mib", "32", "--piece-mib", "4", "--seconds", "600"]);
    until_counted("the third one works", 5, || third.said().steps as usize);
    opener.does("fill-opened 99");
    owner.does("see-shared 99");
    owner.does("check");
    let moved =
        |event: &std::rc::Rc<serde_json::Value>| event["event"] == "moving_out" && event["job"] == "owner";
    assert!(stage.events().iter().any(moved), "what it does not share is moved");
    // Freed by its owner, it counts until nobody has it open any more.
    owner.does("free-shared");
    owner.does("free-shared");
    opener.does("see-opened 99");
    opener.does("close");
    opener.does("see-opened 7");
    opener.does("close");
    drop(third);
    owner.end();
    opener.end();
    until("nothing is left", || stage.listing().tenants.is_empty());
    stage.finish();
}
