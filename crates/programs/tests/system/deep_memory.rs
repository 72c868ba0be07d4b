//! `rota pause --deep` of programs with memory that is not theirs alone, or not rota's.

use std::time::Duration;

use crate::deep::{bring_back, idle, is_not_put_away, on_device, put_away, rota, stage};
use crate::parts::{PUPPET, on_virtual_gpu};
use crate::puppet::Puppet;
use crate::stage::{Stage, until};

const MIB: u64 = 1 << 20;

/// Pauses it, and waits until it is refused for memory of others that it has.
fn is_refused(stage: &Stage, name: &str, program: &Puppet) {
    let told = is_not_put_away(stage, name);
    assert!(told.contains("it has memory of other processes open"), "{told}");
    let why = || rota(stage, &["describe", name]);
    until("it is said why", || why().contains("it has memory of other processes open"));
    assert!(on_device(stage, program).is_some());
    rota(stage, &["resume", name]);
}

#[test]
fn one_that_has_opened_anothers_memory_stays_until_it_has_closed_that() {
    let stage = stage();
    let file = stage.path("name");
    let mut owner = Puppet::start(&stage, "owner", &[]);
    owner.does(&format!("share {} {} 7", file.display(), 4 * MIB));
    let mut opener = idle(&stage, "opener");
    opener.does(&format!("open {}", file.display()));
    is_refused(&stage, "opener", &opener);
    // It is the same memory still.
    opener.does("fill-opened 9");
    owner.does("see-shared 9");
    opener.does("check");
    opener.does("close");
    put_away(&stage, "opener", &opener);
    bring_back(&stage, "opener");
    opener.does("check");
    opener.end();
    owner.end();
    stage.finish();
}

#[test]
fn one_that_has_imported_a_strangers_memory_stays() {
    let stage = stage();
    let mut command = std::process::Command::new(PUPPET);
    on_virtual_gpu(&mut command, stage.folder());
    let mut stranger = Puppet::by(&stage, "stranger", command);
    let file = stage.path("file");
    stranger.does(&format!("create {}", 4 * MIB));
    stranger.does(&format!("export-to {}", file.display()));
    let mut program = idle(&stage, "importer");
    program.does(&format!("import {}", file.display()));
    is_refused(&stage, "importer", &program);
    program.does("check");
    program.end();
    stranger.end();
    stage.finish();
}

/// Nobody asks the driver for anything while it is away, rota's own thread that looks after the pool either: the virtual GPU would
/// write that down.
#[test]
fn one_with_a_pool_of_the_drivers_is_left_alone_while_it_is_away() {
    let stage = stage();
    let mut command = stage.under_rota(0, "pool");
    command.env("ROTA_POOLS", "native").arg(PUPPET);
    let mut program = Puppet::by(&stage, "pool", command);
    program.does("keep 8");
    program.does(&format!("ordered {}", 12 * MIB));
    program.does("synchronize");
    let counted = || stage.listing().tenants.iter().map(|tenant| tenant.resident_bytes).sum::<u64>();
    until("the pool is looked at", || counted() >= 20 * MIB);
    for _ in 0..2 {
        put_away(&stage, "pool", &program);
        // That thread looks each 0.9 s.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(on_device(&stage, &program), None);
        bring_back(&stage, "pool");
        program.does("check");
    }
    program.does("free-ordered");
    until("it is looked at again", || counted() < 20 * MIB);
    program.end();
    stage.finish();
}
