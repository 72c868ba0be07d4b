//! The table against what frameworks were seen to ask a driver for.

use rota_cuda::table;

/// Names asked with the CUDA version the program was built with, whatever version brought the function.
const ASKED_WITH_THE_PROGRAMS_VERSION: &[(&str, u32)] =
    &[("cuDeviceGet", 13000), ("cuDeviceGetAttribute", 13000), ("cuDeviceGetName", 13000)];

struct Row<'a> {
    how: &'a str,
    name: &'a str,
    version: u32,
    flags: u64,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let data = include_str!("data/entry-points.txt");
    let lines = data.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_framework, how, name, version, flags] = fields[..] else {
            panic!("not five fields: {line:?}");
        };
        Row { how, name, version: version.parse().expect("a version"), flags: flags.parse().expect("flags") }
    })
}

#[test]
fn every_name_asked_of_the_resolver_is_in_the_table() {
    let mut seen = 0;
    for row in rows().filter(|row| row.how == "gpa2") {
        seen += 1;
        let found = table::lookup(row.name, row.version, row.flags);
        let found = found
            .unwrap_or_else(|| panic!("{} {} flags {}: not in the table", row.name, row.version, row.flags));
        // A runtime asks with the version that brought the symbol it wants, so the versions must agree.
        if !ASKED_WITH_THE_PROGRAMS_VERSION.contains(&(row.name, row.version)) {
            assert_eq!(found.since, row.version, "{found:?}, flags {}", row.flags);
        }
    }
    assert!(seen > 1000, "only {seen} rows");
}

#[test]
fn every_symbol_asked_of_the_linker_is_in_the_table() {
    let mut seen = 0;
    for row in rows().filter(|row| row.how != "gpa2") {
        seen += 1;
        assert!(table::by_symbol(row.name).is_some(), "{} ({}): not in the table", row.name, row.how);
    }
    assert!(seen > 50, "only {seen} rows");
}
