//! Patterns for paths: `*` and `?` stand for anything within one name, `**` for anything at all.

/// Does all of `text` fit `pattern`?
pub(super) fn fits(pattern: &str, text: &[u8]) -> bool {
    let parts = parts(pattern.as_bytes());
    // Whether the text as far as it was looked at can end before each part. One row is enough, and no pattern takes long.
    let mut reached = vec![false; parts.len() + 1];
    reached[0] = true;
    skip_runs(&parts, &mut reached);
    for &byte in text {
        let mut next = vec![false; parts.len() + 1];
        for (at, part) in parts.iter().enumerate().filter(|&(at, _)| reached[at]) {
            match part {
                Part::Byte(expected) => next[at + 1] |= byte == *expected,
                Part::One => next[at + 1] |= byte != b'/',
                Part::Run => next[at] |= byte != b'/',
                Part::Everything => next[at] = true,
            }
        }
        reached = next;
        skip_runs(&parts, &mut reached);
    }
    reached[parts.len()]
}

/// Does it stand for one text only?
pub(super) fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    One,
    Run,
    Everything,
}

fn parts(mut pattern: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some((&first, rest)) = pattern.split_first() {
        let (part, rest) = match (first, rest.first()) {
            (b'*', Some(b'*')) => (Part::Everything, &rest[1..]),
            (b'*', _) => (Part::Run, rest),
            (b'?', _) => (Part::One, rest),
            _ => (Part::Byte(first), rest),
        };
        parts.push(part);
        pattern = rest;
    }
    parts
}

/// A run may be of nothing.
fn skip_runs(parts: &[Part], reached: &mut [bool]) {
    for (at, part) in parts.iter().enumerate() {
        if reached[at] && matches!(part, Part::Run | Part::Everything) {
            reached[at + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_name_unless_there_are_two() {
        for (pattern, text, expected) in [
            ("/usr/bin/python3", "/usr/bin/python3", true),
            ("/usr/bin/python3", "/usr/bin/python3.11", false),
            ("/usr/bin/python3*", "/usr/bin/python3.11", true),
            ("/usr/bin/python3*", "/usr/bin/python3", true),
            ("/usr/bin/python?", "/usr/bin/python3", true),
            ("/usr/bin/python?", "/usr/bin/python", false),
            ("/usr/bin?python", "/usr/bin/python", false),
            ("/opt/*/serve", "/opt/a/serve", true),
            ("/opt/*/serve", "/opt/a/b/serve", false),
            ("/opt/**/serve", "/opt/a/b/serve", true),
            ("/opt/**", "/opt/a/b", true),
            ("/opt/**", "/opts", false),
            ("*-server", "triton-server", true),
            ("*-server", "-servers", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let text = ["a".repeat(3000), "b".into()].concat();
        assert!(!fits(&"*a".repeat(1000), text.as_bytes()));
    }
}
