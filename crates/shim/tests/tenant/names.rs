//! Names of memory that others may open, while one daemon follows another.

use crate::bench::*;
use wire::{FromDaemon, GrantId, SharedPage, ToDaemon, Token};

const BYTES: u64 = 64 << 20;

/// The next that is published: by which request, and how the program calls it.
fn published(daemon: &Daemon) -> (GrantId, Token) {
    loop {
        match daemon.next() {
            (ToDaemon::Publish { request, token, handles, complete }, files) => {
                assert!(complete && !handles.is_empty() && handles.len() == files.len());
                return (request, token);
            }
            (ToDaemon::Pin { request, .. }, _) => daemon.send(FromDaemon::Pinned { request }),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_published_again_has_its_name_and_nobody_waits_for_an_answer() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, BYTES);
    program.tell(&format!("name {address:x}"));
    let (request, token) = published(&daemon);
    daemon.send(FromDaemon::Published { request });
    assert_eq!(program.answer(), format!("0 {:x}", token.0 as u64));
    let mut daemon = daemon;
    for epoch in 2..4 {
        let held = bench.listen();
        drop(daemon);
        daemon = Daemon::take_over(SharedPage::create(epoch).unwrap(), &held).0;
        let (request, again) = published(&daemon);
        assert_eq!(again, token);
        // A grant is given back exactly if nobody waits for it. One that is waited for is kept, for ever if nobody does.
        daemon.send(FromDaemon::Granted { grant: request });
        assert_eq!(daemon.next().0, ToDaemon::Returned { grant: request });
    }
    assert!(program.end().success());
}
