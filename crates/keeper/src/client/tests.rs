use super::*;
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use wire::Listener;

/// Somebody else on this machine.
const NOBODY: u32 = 65534;

#[test]
fn somebody_elses_socket_is_no_keeper() {
    // Only root can be somebody else for a moment.
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("it is ours");
    let socket = folder.path().join("keeper");
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            let nobody = Uid::from_raw(NOBODY);
            // By the system call alone, this is the user of this thread only.
            set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            Listener::bind(&socket).expect("anybody may put a socket there")
        });
        let _theirs = theirs.join().expect("it does not panic");
        let refused = Client::connect(&socket, Patience::default()).expect_err("it is not ours");
        assert!(matches!(refused, ClientError::Stranger { uid: NOBODY }), "{refused}");
    });
}
