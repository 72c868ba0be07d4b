//! The pages about rota: every link from one to another, or to a heading, leads somewhere.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What is built or fetched, and not rota's.
const NOT_OURS: [&str; 5] = ["target", "bundle", "build", "venv", "node_modules"];

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), entry.file_name());
        let is_ours =
            !name.as_encoded_bytes().starts_with(b".") && !NOT_OURS.iter().any(|other| name == *other);
        if entry.file_type().expect("it has a type").is_dir() && is_ours {
            pages(&path, found);
        } else if path.extension() == Some(OsStr::new("md")) {
            found.push(path);
        }
    }
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The lines that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

/// What can stand behind the `#` of a link to this page, as web pages are made of them: letters and digits of each heading,
/// with dashes for spaces, and a number from the second of a name on.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut names = std::iter::once(name.clone()).chain((1..).map(|number| format!("{name}-{number}")));
        let free = names.find(|name| !found.contains(name)).expect("numbers do not end");
        found.insert(free);
    }
    found
}

/// Where the links of a page lead; what looks like one within code is none.
fn links(text: &str) -> Vec<String> {
    let lines: Vec<&str> = prose(text).collect();
    let paragraphs = lines.split(|line| line.trim().is_empty()).map(|paragraph| paragraph.join("\n"));
    let without_code =
        paragraphs.map(|paragraph| paragraph.split('`').step_by(2).collect::<Vec<_>>().concat());
    let of = |paragraph: String| {
        let ends = paragraph.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        ends.map(|(link, _)| link.to_owned()).collect::<Vec<_>>()
    };
    without_code.flat_map(of).collect()
}

/// What is wrong with a link of this page.
fn complaint(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let there = if path.is_empty() { page.to_owned() } else { page.with_file_name(path) };
    let what = if !there.exists() {
        "is not there"
    } else if !anchor.is_empty() && !anchors(&read(&there)).contains(anchor) {
        "has no such heading"
    } else {
        return None;
    };
    Some(format!("{}: {link} {what}", page.display()))
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    pages(&root, &mut found);
    assert!(found.contains(&root.join("README.md")) && found.contains(&root.join("docs/limits.md")));
    let links = found.iter().flat_map(|page| links(&read(page)).into_iter().map(move |link| (page, link)));
    let complaints: Vec<String> = links.filter_map(|(page, link)| complaint(page, &link)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn links_that_lead_nowhere_are_seen() {
    let folder = tempfile::TempDir::new().unwrap();
    let page = folder.path().join("a.md");
    let text = "# One\n\n[`x`](a.md#one) [y](#two-it-is) `[no](link)`\n\n```sh\n# no heading [z](z)\n```\n\n## Two, \"it\" is\n\n# One\n";
    std::fs::write(&page, text).unwrap();
    assert_eq!(links(text), ["a.md#one", "#two-it-is"]);
    for good in ["a.md", "#one", "#one-1", "a.md#two-it-is", "https://example.org/#x"] {
        assert_eq!(complaint(&page, good), None);
    }
    for wrong in ["b.md", "#three", "a.md#no-heading-zz", "#one-2", "../a.md"] {
        assert!(complaint(&page, wrong).is_some(), "{wrong}");
    }
}
