use super::*;
use std::os::unix::fs::symlink;

/// Somebody else on this machine.
const NOBODY: u32 = 65534;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn its_folder_is_made_closed_and_an_open_one_of_ours_is_closed() {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("socket.keeper");
    make_folder(&folder).unwrap();
    assert_eq!(mode(&folder), OWNER_ONLY);
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    make_folder(&folder).unwrap();
    assert_eq!(mode(&folder), OWNER_ONLY);
}

#[test]
fn what_somebody_else_may_have_put_there_is_not_used() {
    let around = tempfile::tempdir().unwrap();
    let (ours, link, file) =
        (around.path().join("ours"), around.path().join("link"), around.path().join("file"));
    std::fs::create_dir(&ours).unwrap();
    symlink(&ours, &link).unwrap();
    std::fs::write(&file, "").unwrap();
    for strange in [&link, &file] {
        let refused = make_folder(strange).unwrap_err().to_string();
        assert!(refused.contains("is not a folder of this user's"), "{refused}");
    }
    assert_ne!(mode(&ours), OWNER_ONLY, "nothing is changed behind a link");
    // Only root can make a folder of somebody else's.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&ours, Some(NOBODY), None).unwrap();
        assert!(make_folder(&ours).is_err());
    }
}

#[test]
fn each_node_has_as_much_of_the_arena() {
    const S: u64 = SEGMENT_BYTES;
    let part = |bytes, node: Option<u32>| Part { bytes, node: node.map(Node) };
    assert_eq!(parts(7 * S, &[]), [part(7 * S, None)]);
    assert_eq!(parts(7 * S, &[Node(3)]), [part(7 * S, Some(3))]);
    let three = [Node(0), Node(1), Node(4)];
    assert_eq!(
        parts(7 * S + 2, &three),
        [part(3 * S + 2, Some(0)), part(2 * S, Some(1)), part(2 * S, Some(4))]
    );
    assert_eq!(parts(2 * S, &three), [part(2 * S, Some(0))], "too little to be shared");
}
