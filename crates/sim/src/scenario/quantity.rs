//! Quantities as people write them: `12GiB`, `159s`, `230us`, `12GB/s`, `5%`. A bare number is an error with a hint.

use sched::Span;
use thiserror::Error;

/// What is wrong with a quantity.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// No number in front.
    #[error("`{0}` does not begin with a number")]
    NoNumber(String),
    /// No unit behind.
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// A unit nobody knows.
    #[error("`{0}` has the unknown unit `{1}`")]
    UnknownUnit(String, String),
    /// More than the type can hold.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// A kind of quantity: its units, each with how many of the smallest one it has.
pub(crate) struct Kind {
    /// What it is, for people.
    pub(crate) name: &'static str,
    /// How to write one, for hints.
    pub(crate) example: &'static str,
    units: &'static [(&'static str, f64)],
    max: u64,
}

pub(crate) const BYTES: Kind = Kind {
    name: "an amount of memory",
    example: "\"12GiB\" or \"600MiB\"",
    units: &[
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ],
    // A PiB: sums of many of them still fit.
    max: 1 << 50,
};

pub(crate) const SPAN: Kind = Kind {
    name: "a length of time",
    example: "\"159s\" or \"100ms\"",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)],
    // A hundred days.
    max: 8_640_000_000_000_000,
};

pub(crate) const RATE: Kind = Kind {
    name: "a bandwidth",
    example: "\"12GB/s\" or \"40GiB/s\"",
    units: &[
        ("B/s", 1.0),
        ("kB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
        ("TB/s", 1e12),
        ("MiB/s", 1_048_576.0),
        ("GiB/s", 1_073_741_824.0),
        ("TiB/s", 1_099_511_627_776.0),
    ],
    max: 1 << 50,
};

pub(crate) const SHARE: Kind =
    Kind { name: "a share", example: "\"5%\" or \"0.5%\"", units: &[("%", 10_000.0)], max: u32::MAX as u64 };

impl Kind {
    /// How many of the smallest unit this is.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..end].parse().map_err(|_| QuantityError::NoNumber(text.into()))?;
        let unit = text[end..].trim();
        if unit.is_empty() {
            return Err(QuantityError::NoUnit(text.into()));
        }
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(QuantityError::UnknownUnit(text.into(), unit.into()));
        };
        let amount = (number * factor).round();
        if amount > self.max as f64 {
            return Err(QuantityError::TooLarge(text.into()));
        }
        Ok(amount as u64)
    }

    /// What to write instead of something that is no such quantity.
    pub(crate) fn hint(&self, error: &QuantityError) -> String {
        if let QuantityError::UnknownUnit(_, unit) = error {
            let known = self.units.iter().map(|(name, _)| *name);
            // Only the case is wrong: the most common mistake.
            if let Some(right) = known.clone().find(|name| name.eq_ignore_ascii_case(unit)) {
                return format!("did you mean `{right}`?");
            }
            return format!("known units are {}", known.collect::<Vec<_>>().join(", "));
        }
        if let QuantityError::TooLarge(_) = error {
            // The largest unit is the last but for other names of the same.
            let largest = self.units.iter().rev().max_by(|one, other| one.1.total_cmp(&other.1));
            let (unit, factor) = largest.copied().unwrap_or(("", 1.0));
            return format!("write at most \"{}{unit}\"", (self.max as f64 / factor).floor());
        }
        format!("write {} as in {}", self.name, self.example)
    }
}

/// `159s`.
pub fn span(text: &str) -> Result<Span, QuantityError> {
    SPAN.parse(text).map(Span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_units() {
        assert_eq!(BYTES.parse("12GiB"), Ok(12 << 30));
        assert_eq!(BYTES.parse("1.5 MiB"), Ok(3 << 19));
        assert_eq!(BYTES.parse("12GB"), Ok(12_000_000_000));
        assert_eq!(span("159s"), Ok(Span::from_secs(159)));
        assert_eq!(span("230us"), Ok(Span::from_micros(230)));
        assert_eq!(span("2min"), Ok(Span::from_secs(120)));
        assert_eq!(RATE.parse("12GB/s"), Ok(12_000_000_000));
        assert_eq!(SHARE.parse("5%"), Ok(50_000));
        assert_eq!(SHARE.parse("0.5%"), Ok(5_000));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(BYTES.parse("12"), Err(QuantityError::NoUnit("12".into())));
        assert_eq!(span("fast"), Err(QuantityError::NoNumber("fast".into())));
        assert_eq!(span("-3s"), Err(QuantityError::NoNumber("-3s".into())));
        assert_eq!(BYTES.parse("12GiX"), Err(QuantityError::UnknownUnit("12GiX".into(), "GiX".into())));
        assert_eq!(BYTES.parse("9999TiB"), Err(QuantityError::TooLarge("9999TiB".into())));
        assert_eq!(SHARE.parse("99999999%"), Err(QuantityError::TooLarge("99999999%".into())));
    }

    #[test]
    fn a_hint_says_what_to_write() {
        let wrong = BYTES.parse("12gib").unwrap_err();
        assert_eq!(BYTES.hint(&wrong), "did you mean `GiB`?");
        assert!(BYTES.hint(&BYTES.parse("12x").unwrap_err()).contains("KiB, MiB"));
        assert!(SPAN.hint(&span("3").unwrap_err()).contains("100ms"));
        assert_eq!(BYTES.hint(&BYTES.parse("9999TiB").unwrap_err()), "write at most \"1024TiB\"");
        assert_eq!(SPAN.hint(&span("9999h").unwrap_err()), "write at most \"2400h\"");
    }
}
