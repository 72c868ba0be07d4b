//! Shortly before a turn ends, memory of the next program comes in, and there is less to do between turns.

use std::rc::Rc;

use serde_json::Value;

use crate::stage::{Setup, Stage, until_counted};

/// What each program has, in small handles.
const PROGRAM_MIB: u64 = 24;
/// And a slab beside them.
const SLAB_MIB: u64 = 2;
/// More than a third of that is free beside whoever runs.
const SPARE_MIB: u64 = 12;
/// Two contexts for the daemon, and four for programs.
const CONTEXTS_MIB: u64 = 6 * 4;
/// Until everybody has its place in the round, once all have their memory.
const SETTLED: usize = 4;
/// Turns that are looked at.
const TURNS: usize = 16;

/// One move: what it brought in, and for whom.
struct Move {
    bytes_in: u64,
    whom: Option<u64>,
    /// Who had its turn meanwhile, if somebody had.
    owner: Option<u64>,
    /// Who had the next turn.
    next: Option<u64>,
    /// How many turns had begun before it.
    turn: usize,
}

impl Move {
    /// Did something come in while somebody had its turn? Where nothing does, room was made for whoever had it.
    fn is_ahead(&self) -> bool {
        self.owner.is_some() && self.whom.is_some()
    }

    /// Was it fetched ahead for whoever had the next turn?
    fn is_right(&self) -> bool {
        self.is_ahead() && self.whom == self.next && self.whom != self.owner
    }
}

/// The moves in turns and between them, by what the daemon told.
fn moves(events: &[Rc<Value>]) -> Vec<Move> {
    let (mut owner, mut turn) = (None, 0);
    let mut moves: Vec<Move> = Vec::new();
    for event in events {
        match event["event"].as_str() {
            Some("turn_begin") => {
                owner = event["tenant"].as_u64();
                turn += 1;
                moves.iter_mut().filter(|one| one.next.is_none()).for_each(|one| one.next = owner);
            }
            Some("turn_end") => owner = None,
            Some("move_begin") => {
                let into = event["into"].as_array().cloned().unwrap_or_default();
                let bytes_in = into.iter().filter_map(|one| one["bytes"].as_u64()).sum();
                let whom = into.first().and_then(|one| one["tenant"].as_u64());
                moves.push(Move { bytes_in, whom, owner, next: None, turn });
            }
            _ => {}
        }
    }
    moves
}

/// Lets four programs take turns, and says what was moved once they had settled.
fn four(prefetch: &str) -> Vec<Move> {
    // Looking for what has changed takes a virtual GPU long, and less would come in ahead of a turn's end.
    let rotad = ["--turn", "300ms", "--prefetch", prefetch, "--clean-copies", "off"];
    let gpu_mib = PROGRAM_MIB + SPARE_MIB + CONTEXTS_MIB;
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib, arena_mib: 128, rotad: &rotad });
    let mut programs = ["1", "2", "3", "4"].map(|seed| {
        let size = ["--mib", "24", "--piece-mib", "4", "--segments"];
        let work = ["--seed", seed, "--steps", "1000000", "--kernel-ms", "20"];
        stage.worker(0, seed, &[&size[..], &work].concat())
    });
    // Until then they take it piece by piece, and what goes makes room for that.
    for program in &mut programs {
        program.goes_on(1);
    }
    let loaded = stage.count("turn_begin");
    until_counted("they had settled", loaded + SETTLED, || stage.count("turn_begin"));
    let settled = moves(&stage.events()).len();
    until_counted("there were so many turns", loaded + SETTLED + TURNS, || stage.count("turn_begin"));
    let mut moves = moves(&stage.events());
    // Each checks every byte in every step.
    for program in &mut programs {
        program.goes_on(2);
    }
    drop(programs);
    stage.finish();
    moves.drain(..settled);
    moves.retain(|one| one.next.is_some());
    moves
}

/// What came in between turns, with each of those moves that count.
fn switches(moves: &[Move], counts: impl Fn(&Move) -> bool) -> Vec<&Move> {
    let between: Vec<_> = moves.iter().filter(|one| one.owner.is_none() && counts(one)).collect();
    assert!(between.len() >= TURNS / 4, "only {} of these turns began with a move", between.len());
    between
}

#[test]
fn what_is_fetched_ahead_a_switch_need_not_move() {
    let moves = four("on");
    let ahead: Vec<_> = moves.iter().filter(|one| one.is_ahead()).collect();
    // On a machine with much else to do it is too late for some: then nothing or less is fetched, and the switch moves more.
    assert!(ahead.len() >= TURNS / 4, "only {} moves while somebody had its turn", ahead.len());
    // Should a turn end early, somebody else may be next after all. Whoever guesses is right one time in three.
    let right: Vec<_> = ahead.iter().filter(|one| one.is_right()).collect();
    assert!(right.len() * 10 >= ahead.len() * 8, "{} of {} were for the next one", right.len(), ahead.len());
    let fetched = |turn| right.iter().filter(|one| one.turn == turn).map(|one| one.bytes_in).sum::<u64>();
    let switches = switches(&moves, |one| fetched(one.turn) > 0);
    // How much is fetched is a matter of speed, which is not tested here; but nothing comes in twice.
    for switch in &switches {
        let all = fetched(switch.turn) + switch.bytes_in;
        assert!(all <= (PROGRAM_MIB + SLAB_MIB) << 20, "{all} bytes came in for one turn");
    }
}

#[test]
fn without_it_nothing_moves_while_somebody_has_its_turn() {
    let moves = four("off");
    assert!(!moves.iter().any(Move::is_ahead));
    let switches = switches(&moves, |_| true);
    // Whose turn is far may have a part of its memory there all the time.
    let cut = switches.iter().filter(|switch| switch.bytes_in * 4 <= (PROGRAM_MIB << 20) * 3).count();
    assert!(cut * 2 < switches.len(), "{cut} of {} switches moved a quarter less", switches.len());
}
