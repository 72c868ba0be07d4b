//! Numbers for people.

use std::time::Duration;

/// Bytes in the unit that leaves few digits.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 MiB".into(),
        bytes => wire::quantity::Bytes(bytes).to_string(),
    }
}

/// A user's name, where the system's own file has it, and number.
pub(crate) fn user(uid: u32) -> String {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.to_string();
    let name = text
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&number))
        .and_then(|line| line.split(':').next());
    name.map_or_else(|| format!("user {uid}"), |name| format!("{} ({uid})", printable(name)))
}

/// A time in the unit that leaves few digits.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A time of which microseconds matter.
pub(crate) fn short_span(time: Duration) -> String {
    match time.as_micros() {
        us @ ..1_000 => format!("{us} us"),
        us @ ..100_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => span(time),
    }
}

/// How often.
pub(crate) fn so_often(times: u64) -> String {
    if times == 1 { "once".into() } else { format!("{times} times") }
}

/// A name that somebody else chose, without what could move the cursor or break the line.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_their_own_unit() {
        assert_eq!(size(0), "0 MiB");
        assert_eq!(size(3 << 19), "1.5 MiB");
        assert_eq!(size(12 << 30), "12.0 GiB");
        assert_eq!(user(0), "root (0)");
    }

    #[test]
    fn short_times_keep_the_digits_that_matter() {
        let found =
            [73, 999, 1_250, 99_900, 100_000, 2_500_000].map(|us| short_span(Duration::from_micros(us)));
        assert_eq!(found, ["73 us", "999 us", "1.2 ms", "99.9 ms", "100 ms", "2 s"]);
    }

    #[test]
    fn times_are_told_in_their_own_unit() {
        assert_eq!(span(Duration::from_millis(999)), "999 ms");
        assert_eq!(span(Duration::from_millis(1999)), "1 s");
        assert_eq!(span(Duration::from_secs(59)), "59 s");
        assert_eq!(span(Duration::from_secs(60)), "1 min 0 s");
        assert_eq!(span(Duration::from_secs(3600 + 125)), "1 h 2 min");
    }

    #[test]
    fn once_is_no_number_of_times() {
        assert_eq!([0, 1, 2].map(so_often), ["0 times", "once", "2 times"]);
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a?[2Jb?");
    }
}
