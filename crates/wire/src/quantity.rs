//! Quantities with units, as people write them: `16GiB`, `5s`, `5%`. A bare number is an error with a hint.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// What is wrong with a quantity.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// No number in front.
    #[error("`{0}` does not begin with a number; write for example {1}")]
    NoNumber(String, &'static str),
    /// No unit behind.
    #[error("`{0}` has no unit; write for example {1}")]
    NoUnit(String, &'static str),
    /// A unit nobody knows.
    #[error("`{0}` has the unknown unit `{1}`; known are {2}")]
    UnknownUnit(String, String, &'static str),
    /// Zero, negative, or more than 64 bits.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const EXAMPLE: &str = "16GiB or 600MiB";
        let (number, unit) = split(text, EXAMPLE)?;
        let factor = match unit {
            "B" => 1.0,
            "KiB" | "Ki" => 1024.0,
            "MiB" | "Mi" => 1048576.0,
            "GiB" | "Gi" => 1073741824.0,
            "TiB" | "Ti" => 1099511627776.0,
            "KB" | "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            other => {
                let known = "B, KiB, MiB, GiB, TiB, KB, MB, GB, TB";
                return Err(QuantityError::UnknownUnit(text.into(), other.into(), known));
            }
        };
        let bytes = number * factor;
        if !(1.0..1.8e19).contains(&bytes) {
            return Err(QuantityError::OutOfRange(text.into()));
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: f64 = (1u64 << 30) as f64;
        const MIB: f64 = (1u64 << 20) as f64;
        if self.0 as f64 >= GIB {
            write!(f, "{:.1} GiB", self.0 as f64 / GIB)
        } else {
            write!(f, "{:.1} MiB", self.0 as f64 / MIB)
        }
    }
}

/// An amount of memory: bytes, or a share of a GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// So many.
    Bytes(u64),
    /// So many millionths of what a GPU has.
    Millionths(u32),
}

impl Memory {
    /// On a GPU of this size.
    pub fn on(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Millionths(millionths) => Share { millionths }.of(capacity_bytes),
        }
    }
}

impl FromStr for Memory {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const EXAMPLE: &str = "8GiB or 50%";
        match split(text, EXAMPLE)? {
            (_, "%") => match text.parse::<Share>()? {
                share if share > Share::ALL => Err(QuantityError::OutOfRange(text.into())),
                share => Ok(Self::Millionths(share.millionths)),
            },
            _ => text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => Bytes(bytes).fmt(f),
            Self::Millionths(millionths) => Share { millionths }.fmt(f),
        }
    }
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const EXAMPLE: &str = "5s or 100ms";
        let (number, unit) = split(text, EXAMPLE)?;
        let seconds = match unit {
            "us" => number / 1e6,
            "ms" => number / 1e3,
            "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            other => return Err(QuantityError::UnknownUnit(text.into(), other.into(), "us, ms, s, min, h")),
        };
        match Duration::try_from_secs_f64(seconds) {
            Ok(length) if !length.is_zero() => Ok(Self(length)),
            _ => Err(QuantityError::OutOfRange(text.into())),
        }
    }
}

impl Span {
    /// In nanoseconds; the most there are, where it is longer.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As `Duration` writes it: 5s, 100ms, 1.5s.
        write!(f, "{:?}", self.0)
    }
}

/// A time that nobody knows exactly, without digits that would mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Roughly(pub Duration);

impl fmt::Display for Roughly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let in_steps = |step: f64| (seconds / step).round() * step;
        match seconds {
            ..0.95 => f.write_str("less than a second"),
            ..19.5 => write!(f, "about {} s", in_steps(1.0)),
            ..97.5 => write!(f, "about {} s", in_steps(5.0)),
            ..5_400.0 => write!(f, "about {} min", in_steps(60.0) / 60.0),
            _ => write!(f, "about {} h", in_steps(3_600.0) / 3_600.0),
        }
    }
}

/// A share of a whole. More than all of it where that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    millionths: u32,
}

impl Share {
    /// All of it.
    pub const ALL: Self = Self { millionths: 1_000_000 };

    /// So many millionths.
    pub const fn of_millionths(millionths: u32) -> Self {
        Self { millionths }
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.millionths
    }

    /// This share of a number.
    pub fn of(self, whole: u64) -> u64 {
        u64::try_from(u128::from(whole) * u128::from(self.millionths) / 1_000_000).unwrap_or(u64::MAX)
    }
}

impl FromStr for Share {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const EXAMPLE: &str = "5%";
        let (number, unit) = split(text, EXAMPLE)?;
        if unit != "%" {
            return Err(QuantityError::UnknownUnit(text.into(), unit.into(), "%"));
        }
        let millionths = number * 1e4;
        if !(1.0..f64::from(u32::MAX)).contains(&millionths) {
            return Err(QuantityError::OutOfRange(text.into()));
        }
        Ok(Self { millionths: millionths.round() as u32 })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.millionths) / 1e4)
    }
}

fn split<'a>(text: &'a str, example: &'static str) -> Result<(f64, &'a str), QuantityError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| QuantityError::NoNumber(text.into(), example))?;
    match text[end..].trim() {
        "" => Err(QuantityError::NoUnit(text.into(), example)),
        unit => Ok((number, unit)),
    }
}

macro_rules! deserialize_from_text {
    ($($name:ty, $example:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(AsText($example, std::marker::PhantomData))
            }
        }
    )*};
}
deserialize_from_text! {
    Bytes, "text with a unit, as \"16GiB\"";
    Span, "text with a unit, as \"5s\"";
    Share, "text with a unit, as \"5%\"";
}

/// Takes text, and says what is expected where something else stands.
struct AsText<T>(&'static str, std::marker::PhantomData<T>);

impl<T: FromStr<Err = QuantityError>> Visitor<'_> for AsText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_exactly_has_few_digits() {
        let rough = |ms| Roughly(Duration::from_millis(ms)).to_string();
        assert_eq!(rough(0), "less than a second");
        assert_eq!(rough(1_400), "about 1 s");
        assert_eq!(rough(12_345), "about 12 s");
        assert_eq!(rough(43_210), "about 45 s");
        assert_eq!(rough(97_600), "about 2 min");
        assert_eq!(rough(3_599_999), "about 60 min");
        assert_eq!(rough(7_000_000), "about 2 h");
    }

    #[test]
    fn bytes_with_units() {
        assert_eq!("16GiB".parse(), Ok(Bytes(16 << 30)));
        assert_eq!("16Gi".parse(), Ok(Bytes(16 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(Bytes(3 << 19)));
        assert_eq!("12GB".parse(), Ok(Bytes(12_000_000_000)));
        assert_eq!(Bytes(16 << 30).to_string(), "16.0 GiB");
    }

    #[test]
    fn memory_as_bytes_or_as_a_share() {
        assert_eq!("8GiB".parse(), Ok(Memory::Bytes(8 << 30)));
        assert_eq!("50%".parse(), Ok(Memory::Millionths(500_000)));
        assert_eq!("50%".parse::<Memory>().unwrap().on(16 << 30), 8 << 30);
        assert!("101%".parse::<Memory>().is_err());
        let error = "8".parse::<Memory>().unwrap_err().to_string();
        assert_eq!(error, "`8` has no unit; write for example 8GiB or 50%");
    }

    #[test]
    fn times_with_units() {
        assert_eq!("5s".parse(), Ok(Span(Duration::from_secs(5))));
        assert_eq!("100ms".parse(), Ok(Span(Duration::from_millis(100))));
    }

    #[test]
    fn shares_with_their_sign() {
        assert_eq!("5%".parse::<Share>().unwrap().millionths(), 50_000);
        assert_eq!("0.5 %".parse::<Share>().unwrap().millionths(), 5_000);
        assert_eq!("50%".parse::<Share>().unwrap().of(8 << 30), 4 << 30);
        assert_eq!("1600%".parse::<Share>().unwrap().to_string(), "1600%");
        assert!("0.05".parse::<Share>().unwrap_err().to_string().contains("no unit"));
        assert!("0%".parse::<Share>().unwrap_err().to_string().contains("out of range"));
        assert!("5s".parse::<Share>().unwrap_err().to_string().contains("unknown unit `s`"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!("16".parse::<Bytes>().unwrap_err().to_string().contains("no unit"));
        assert!("GiB".parse::<Bytes>().unwrap_err().to_string().contains("begin with a number"));
        assert!("16 gib".parse::<Bytes>().unwrap_err().to_string().contains("unknown unit `gib`"));
        assert!("0s".parse::<Span>().unwrap_err().to_string().contains("out of range"));
        assert!("99999999TiB".parse::<Bytes>().unwrap_err().to_string().contains("out of range"));
        assert!("".parse::<Span>().is_err());
    }
}
