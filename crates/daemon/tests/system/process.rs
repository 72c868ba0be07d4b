//! A tenant in a process of its own: this test program, started once more, with [`PLAN`] in its environment.

use crate::engine;
use crate::publications;
use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{Meter, World, await_some, await_that};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use wire::{TenantId, Token};

/// The environment variable that makes this program a tenant: manners, client, bytes and socket.
const PLAN: &str = "ROTA_TEST_TENANT";
/// What makes it another's, and what it says when it is.
const STRANGE: &str = "strange";
/// Nobody's user and group.
const ANOTHER: u32 = 4711;
/// How the lines begin that are meant for the parent.
const MARK: &str = "tenant:";

/// See the module. Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    tenant: TenantId,
    client: u32,
    control_inode: u64,
}

impl Process {
    /// Starts one, and waits until it has its memory.
    pub(crate) fn start(world: &World, manners: Manners, bytes: u64) -> Self {
        let client = engine::new_client();
        let plan = format!("{manners:?} {client} {bytes} {}", world.socket().display());
        let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(["--exact", "process::is_a_tenant", "--nocapture", "--quiet"])
            .env(PLAN, plan)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (output, heard) = (child.stdout.take().expect("piped"), lines.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test harness may have begun the line.
                if let Some((_, line)) = line.split_once(MARK) {
                    heard.lock().unwrap_or_else(PoisonError::into_inner).push(line.trim().to_owned());
                }
            }
        });
        let mut process = Self { child, lines, tenant: TenantId(0), client, control_inode: 0 };
        process.tenant = TenantId(process.await_number("id"));
        process.control_inode = process.await_number("control");
        process.await_line("allocated");
        process
    }

    /// Waits until it says this.
    pub(crate) fn await_line(&self, line: &str) {
        await_that(&format!("the process says {line}"), || {
            self.heard(|heard| (heard == line).then_some(())).is_some()
        });
    }

    fn await_number<T: std::str::FromStr>(&self, name: &str) -> T {
        await_some(&format!("the process says its {name}"), || {
            self.heard(|line| line.strip_prefix(name)?.trim().parse().ok())
        })
    }

    fn heard<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().find_map(|line| find(line))
    }

    /// Its number at the daemon.
    pub(crate) fn id(&self) -> TenantId {
        self.tenant
    }

    /// What others open its memory by, if it is one that publishes.
    pub(crate) fn token(&self) -> Token {
        Token(self.client.into())
    }

    /// Has it become a program whose memory nobody else may have.
    pub(crate) fn become_strange(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{STRANGE}").expect("it listens");
        self.await_line(STRANGE);
    }

    /// Stops it, as Ctrl-Z does.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it can be waited for");
    }

    /// Has the daemon, which is in this process, its control file open?
    pub(crate) fn control_file_is_held(&self) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").expect("Linux").filter_map(Result::ok);
        open.filter_map(|file| file.path().metadata().ok()).any(|file| file.ino() == self.control_inode)
    }

    /// Lets it end by itself, and checks that nothing was wrong.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "tenant {} found something wrong", self.tenant);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what a [`Process`] runs. Without a plan it does nothing.
#[test]
fn is_a_tenant() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let mut words = plan.splitn(4, ' ');
    let mut next = || words.next().expect("the plan is complete");
    let manners = match next() {
        "Good" => Manners::Good,
        "IgnoresUnmap" => Manners::IgnoresUnmap,
        "IgnoresCreate" => Manners::IgnoresCreate,
        "Publishes" => Manners::Publishes,
        "Opens" => Manners::Opens,
        "Passes" => Manners::Passes,
        other => panic!("no process has the manners {other}"),
    };
    let client: u32 = next().parse().expect("a client");
    let bytes = next().parse().expect("bytes");
    let tenant = Tenant::reach(Path::new(next()), client, manners, Meter::default());
    let inode = rustix::fs::fstat(tenant.control_file()).expect("a control file").st_ino;
    say(&format!("id {}", tenant.id()));
    say(&format!("control {inode}"));
    tenant.allocate_in_three(bytes);
    if manners == Manners::Publishes {
        assert_eq!(tenant.pin(&tenant.handles()), Verdict::Granted);
        assert_eq!(tenant.publish(Token(client.into()), &tenant.handles()), Verdict::Granted);
    }
    if manners == Manners::Opens {
        tenant.open(publications::TOKEN).expect("it is published");
    }
    say("allocated");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let told = std::io::stdin().lines().map_while(Result::ok);
            for _ in told.filter(|line| line == STRANGE) {
                become_strange();
                say(STRANGE);
            }
            // Also when the parent is gone.
            std::process::exit(i32::from(!tenant.wrong().is_empty()));
        });
        for (order, line) in [(Order::Unmap, "unmap"), (Order::Create, "create")] {
            let tenant = &tenant;
            scope.spawn(move || {
                while !tenant.was_asked_to(order) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                say(line);
            });
        }
    });
}

/// Becomes another user's, or, who is not root, hides from its own.
fn become_strange() {
    if !rustix::process::geteuid().is_root() {
        let hides = rustix::process::DumpableBehavior::NotDumpable;
        return rustix::process::set_dumpable_behavior(hides).expect("anybody may");
    }
    // SAFETY: the C library has all threads of the process do the same, and no memory is involved.
    let done =
        unsafe { libc::setresgid(ANOTHER, ANOTHER, ANOTHER) + libc::setresuid(ANOTHER, ANOTHER, ANOTHER) };
    assert_eq!(done, 0, "root may become anybody");
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{MARK} {line}");
    let _ = output.flush();
}
