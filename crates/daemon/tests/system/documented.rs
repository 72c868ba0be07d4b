//! `docs/events.md` names every event that the daemon can write, with every field: those that the source names, and those that
//! all tests here have seen.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What every line has, and what each has that is about a program.
const OF_ALL: [&str; 2] = ["t_ns", "event"];
const OF_PROGRAMS: [&str; 3] = ["tenant", "pid", "job"];

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
    std::fs::read_to_string(path).expect("events are documented")
}

/// Words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The events that are documented, each with all fields that it may have.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = document();
    let mut of_program = false;
    let mut events = BTreeMap::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            of_program = line == "## Of a program";
        }
        let mut cells = line.split('|').skip(1);
        let (Some(event), Some(fields)) = (cells.next(), cells.next()) else { continue };
        let Some(event) = quoted(event).next() else { continue };
        let common = OF_ALL.iter().chain(OF_PROGRAMS.iter().filter(|_| of_program));
        let fields = quoted(fields).chain(common.map(|field| (*field).to_owned())).collect();
        assert!(events.insert(event.clone(), fields).is_none(), "{event} is there twice");
    }
    events
}

/// Fails if one of these is not documented so.
pub(crate) fn check(events: &[Value]) {
    let documented = documented();
    for event in events {
        let name = event["event"].as_str().unwrap_or_default();
        let fields = documented.get(name).unwrap_or_else(|| panic!("docs/events.md does not have {event}"));
        for field in event.as_object().expect("an event is an object").keys() {
            assert!(
                fields.contains(field),
                "docs/events.md does not say that `{name}` has `{field}`: {event}"
            );
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.extend(Some(path).filter(|path| path.extension().is_some_and(|end| end == "rs"))),
        }
    }
}

/// What stands in the brackets that are open at the beginning.
fn bracketed(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|letter| {
        open += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// The words in quotes that are followed, or surrounded, by this.
fn words_with<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let parts: Vec<&str> = text.split('"').collect();
    let around = parts.windows(3).filter(|part| part[0].ends_with(before) && part[2].starts_with(after));
    around.map(|part| part[1]).filter(|word| is_word(word)).collect()
}

#[test]
fn every_event_that_the_source_names_is_documented() {
    let (documented, text) = (documented(), document());
    let named: BTreeSet<String> = quoted(&text).collect();
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut seen = BTreeSet::new();
    for file in files.iter().filter(|file| !file.ends_with("src/events.rs")) {
        let source = std::fs::read_to_string(file).expect("a source");
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let calls = ["note(", "note_of("].map(|call| code.split(call).skip(1).map(bracketed));
        let mut notes = false;
        for call in calls.into_iter().flatten() {
            let before_fields = call.split("json!").next().unwrap_or_default();
            let Some(event) = words_with(before_fields, "", ",").first().copied() else { continue };
            notes = true;
            seen.insert(event.to_owned());
            let fields = documented.get(event);
            let fields = fields.unwrap_or_else(|| panic!("{}: `{event}` is not there", file.display()));
            for key in words_with(call, "", ":") {
                assert!(fields.contains(key), "{}: `{key}` of `{event}` is not there", file.display());
            }
        }
        // What is put together before it is noted.
        let apart = words_with(code, "", ":").into_iter().chain(words_with(code, "fields[", "]"));
        for key in apart.filter(|_| notes) {
            assert!(named.contains(key), "{}: `{key}` is not there", file.display());
        }
    }
    let all: BTreeSet<String> = documented.into_keys().collect();
    assert_eq!(seen, all, "documented, and never written");
}

#[test]
fn fields_with_fields_of_their_own_are_documented() {
    let text = document();
    let named: BTreeSet<String> = quoted(&text).collect();
    let times = wire::Times { count: 0, p50_ns: 0, p99_ns: 0, p999_ns: 0, max_ns: 0 };
    let requests = wire::RequestTimes { by_program: true, times, slo_missed: 0 };
    let statistics = wire::Statistics { requests: Some(requests), ..wire::Statistics::default() };
    let values = [serde_json::to_value(statistics), serde_json::to_value(wire::Change::default())];
    let mut left: Vec<Value> = values.into_iter().map(|value| value.expect("it is JSON")).collect();
    while let Some(value) = left.pop() {
        for (key, inner) in value.as_object().into_iter().flatten() {
            assert!(named.contains(key), "`{key}` is not there");
            left.push(inner.clone());
        }
    }
}
