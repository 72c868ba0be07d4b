use super::*;
use crate::client::{Client, ClientError, Patience};
use crate::message::{Outcome, Reservation, Wanted};
use crate::names::{HandleKey, Process, TenantNumber};
use crate::part::Part;
use crate::{BLOCK_BYTES, End};
use rustix::process::Pid;
use std::process::{Command, Stdio};

/// Asks for space, and again while the arena is not ready.
fn reserve(keeper: &mut Keeper, tenant: TenantNumber) {
    let introduced = keeper.answer(Request::Introduce { tenant, process: Process::this() });
    assert_eq!(introduced.answer, Answer::Outcome(Outcome::Done));
    loop {
        keeper.take_up();
        let wanted = vec![Wanted { key: HandleKey { tenant, handle: 1 }, bytes: BLOCK_BYTES }];
        match keeper.answer(Request::Reserve { near: None, wanted }).answer {
            Answer::Reserved(all) if matches!(all[0], Reservation::Space { .. }) => return,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A process that ends when it is told to.
struct Lingering(std::process::Child);

impl Lingering {
    fn start() -> Lingering {
        Lingering(Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process"))
    }

    /// As if it were the worker of a keeper, and had lost its connection.
    fn was_worker_of(&self, server: &mut Server) {
        let watch = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).expect("it is ours");
        let (connection, its) = Connection::pair().expect("two ends");
        server.worker = Some(Worker { connection, pid: self.0.id(), watch });
        drop(its);
    }

    /// It is not reaped, and has ended all the same.
    fn end(&mut self) {
        drop(self.0.stdin.take());
    }
}

fn serve(listener: Listener) -> Server {
    let part = Part { bytes: 2 * BLOCK_BYTES, node: None };
    let mut server = Server::new(Keeper::start(&[part], BLOCK_BYTES).expect("a small arena"), listener);
    reserve(&mut server.keeper, TenantNumber(1));
    server
}

#[test]
fn the_next_worker_is_let_in_when_the_process_of_the_last_one_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let mut server = serve(Listener::bind(&socket).expect("a socket"));
    let mut last = Lingering::start();
    last.was_worker_of(&mut server);
    let serves = std::thread::spawn(move || server.run());

    let brief = Patience { connect: Duration::from_millis(50), ..Patience::default() };
    let busy = Client::connect(&socket, brief).expect_err("the process is there");
    assert!(matches!(busy, ClientError::Busy { pid, .. } if pid == last.0.id()), "{busy}");
    last.end();
    let mut next = Client::connect(&socket, Patience::default()).expect("the keeper is there");
    assert_eq!(next.progress().expect("an answer").orphaned_bytes, BLOCK_BYTES);
    assert_eq!(next.reclaim().expect("an answer"), BLOCK_BYTES, "its word is enough");
    next.leave(End::Forced).expect("it may leave");
    serves.join().expect("it does not panic");
    last.0.wait().expect("it has ended");
}

#[test]
fn one_that_comes_again_has_not_to_wait_for_itself_nor_others_for_one_that_took_its_leave() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let mut server = serve(Listener::bind(&socket).expect("a socket"));
    let serves = std::thread::spawn(move || server.run());
    let mut worker = Client::connect(&socket, Patience::default()).expect("the keeper is there");
    worker.reconnect().expect("it is the same process");
    assert_eq!(worker.reclaim().expect("an answer"), BLOCK_BYTES);
    worker.leave(End::Stay).expect("it may leave");
    // This process is there still. Were it not for the farewell, another one would be told so.
    let mut other = Command::new(std::env::current_exe().expect("this executable"));
    other.args(["--exact", "server::tests::another_process_is_let_in", "--ignored"]).env(SOCKET, &socket);
    assert!(other.stdout(Stdio::null()).status().expect("a process").success());
    Client::connect(&socket, Patience::default())
        .and_then(|client| client.leave(End::Forced))
        .expect("the other one took its leave, too");
    serves.join().expect("it does not panic");
}

/// Where the process of the next test finds its keeper.
const SOCKET: &str = "ROTA_TEST_KEEPER";

#[test]
#[ignore = "a process of another test"]
fn another_process_is_let_in() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let brief = Patience { connect: Duration::from_secs(5), ..Patience::default() };
    let worker = Client::connect(std::path::Path::new(&socket), brief).expect("nobody is in the way");
    worker.leave(End::Stay).expect("it may leave");
}
