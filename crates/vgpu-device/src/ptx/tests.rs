use super::*;

#[test]
fn the_heartbeat_has_three_words() {
    let ptx = parse(channels::HEARTBEAT_PTX).unwrap();
    let parameters = vec![(0, 8), (8, 8), (16, 8)];
    assert_eq!(ptx.entries, [Entry { name: "heartbeat".into(), parameters }]);
}

#[test]
fn layouts_follow_alignment_and_arrays() {
    let text = ".version 7.0 .target sm_70 /* a /comment */ .address_size 64\n\
        .visible .global .align 8 .b8 table[24];\n\
        .entry one(.param .u32 a, .param .u64 b, .param .align 4 .b8 c[12]) { .reg .b32 %r; { ret; } }\n\
        .visible .entry two() { ret; }";
    let ptx = parse(text).unwrap();
    assert_eq!(ptx.entries[0].parameters, [(0, 4), (8, 8), (16, 12)]);
    assert_eq!((ptx.entries[1].name.as_str(), ptx.entries[1].parameters.len()), ("two", 0));
    assert_eq!(ptx.variables, [Variable { name: "table".into(), bytes: 24 }]);
}

#[test]
fn what_is_no_ptx_is_told_apart_from_bad_ptx() {
    assert_eq!(parse("hello"), Err(PtxError::NotPtx));
    assert!(matches!(parse(".version 7.0\n.entry x("), Err(PtxError::Malformed(_))));
    assert!(matches!(
        parse(".version 7.0 .target sm_70 .entry x(.param .blob y) {}"),
        Err(PtxError::Malformed(_))
    ));
    assert!(matches!(parse(".version 7.0 .target sm_70 .entry x() { {"), Err(PtxError::Malformed(_))));
}
