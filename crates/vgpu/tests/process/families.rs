//! Functions that rota's own code and the conformance suite don't call: each family does what it should.

use crate::bench::Bench;

const SPEC: &str = "memory = \"256MiB\"\ncontext_memory = \"16MiB\"\ngpus = 2\n";

fn play(part: &str) {
    let bench = Bench::new(SPEC);
    bench.play(part);
    assert_eq!(bench.misuse(), "");
}

#[test]
fn what_graphs_tell_of_their_nodes() {
    play("graph");
}

#[test]
fn libraries_and_files_of_modules() {
    play("library");
}

#[test]
fn copies_in_batches_and_between_gpus() {
    play("batch");
}

#[test]
fn values_in_memory_order_streams() {
    play("values");
}

#[test]
fn memory_of_another_process_by_name() {
    play("ipc");
}

#[test]
fn what_is_not_supported_says_so() {
    play("refused");
}

#[test]
fn an_illegal_address_ends_a_process_and_no_other() {
    let bench = Bench::new(SPEC);
    bench.play("sticky");
    bench.play("copy");
}
