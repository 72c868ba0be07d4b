//! Quantities as people write them in `vgpu.toml`: `1GiB`, `230us`, `1GB/s`, `1e6/s`. A unit is needed.

use serde::{Deserialize, Deserializer};
use std::str::FromStr;

/// What is wrong with a quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QuantityError {
    /// No number in front.
    #[error("`{0}` does not begin with a number; write for example {1}")]
    NoNumber(String, &'static str),
    /// A unit nobody knows, or none.
    #[error("`{0}` has the unknown unit `{1}`; write for example {2}")]
    UnknownUnit(String, String, &'static str),
    /// Negative, or too large.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A length of time, in nanoseconds; also an instant, counted from the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// The time from `earlier` until this; none if that is later.
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// A share of it.
    pub fn share(self, share: f64) -> Self {
        Self((self.0 as f64 * share).round() as u64)
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Something a second: bytes, or rounds of a loop. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// How long `amount` takes.
    pub fn time_of(self, amount: u64) -> Nanos {
        Nanos(
            (u128::from(amount) * 1_000_000_000 / u128::from(self.0.max(1))).min(u128::from(u64::MAX)) as u64
        )
    }

    /// How much is done in `time`.
    pub fn amount_in(self, time: Nanos) -> u64 {
        (u128::from(time.0) * u128::from(self.0) / 1_000_000_000).min(u128::from(u64::MAX)) as u64
    }
}

fn size(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    })
}

/// Number and factor of the unit, multiplied.
fn parse(
    text: &str,
    example: &'static str,
    factor: impl Fn(&str) -> Option<f64>,
) -> Result<u64, QuantityError> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|&(at, c)| {
            let exponent = c == 'e' && text[at + 1..].starts_with(|next: char| next.is_ascii_digit());
            !(c.is_ascii_digit() || c == '.' || c == '-' || exponent)
        })
        .map_or(text.len(), |(at, _)| at);
    let number: f64 = text[..end].parse().map_err(|_| QuantityError::NoNumber(text.into(), example))?;
    let unit = text[end..].trim();
    let factor = factor(unit).ok_or_else(|| QuantityError::UnknownUnit(text.into(), unit.into(), example))?;
    let value = number * factor;
    if !(0.0..1.8e19).contains(&value) {
        return Err(QuantityError::OutOfRange(text.into()));
    }
    Ok(value.round() as u64)
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, "1GiB or 512MiB", size).map(Self)
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, "230us or 2s", |unit| {
            Some(match unit {
                "ns" => 1.0,
                "us" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                _ => return None,
            })
        })
        .map(Self)
    }
}

impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let rate = parse(text, "1GB/s or 1e6/s", |unit| match unit.strip_suffix("/s")? {
            "" => Some(1.0),
            bytes => size(bytes),
        })?;
        if rate == 0 { Err(QuantityError::OutOfRange(text.into())) } else { Ok(Self(rate)) }
    }
}

macro_rules! from_text {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                String::deserialize(source)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
from_text!(Bytes, Nanos, Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!("1GiB".parse(), Ok(Bytes(1 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(Bytes(3 << 19)));
        assert_eq!("230us".parse(), Ok(Nanos(230_000)));
        assert_eq!("1e6/s".parse(), Ok(Rate(1_000_000)));
        assert_eq!("2GB/s".parse(), Ok(Rate(2_000_000_000)));
    }

    #[test]
    fn what_is_refused() {
        assert!(matches!("GiB".parse::<Bytes>(), Err(QuantityError::NoNumber(..))));
        assert!(matches!("12".parse::<Bytes>(), Err(QuantityError::UnknownUnit(..))));
        assert!(matches!("-1s".parse::<Nanos>(), Err(QuantityError::OutOfRange(_))));
        assert!(matches!("0GB/s".parse::<Rate>(), Err(QuantityError::OutOfRange(_))));
    }

    #[test]
    fn rates_are_exact_for_large_amounts() {
        let rate = Rate(55_000_000_000);
        assert_eq!(rate.time_of(55_000_000_000 * 3), Nanos(3_000_000_000));
        assert_eq!(rate.amount_in(Nanos(1_000)), 55_000);
    }
}
