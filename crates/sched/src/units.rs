//! Quantities as types, so that bytes, instants and lengths of time are never mixed up.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// An instant: nanoseconds since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A share in parts per million: whole numbers keep the core the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio(pub u32);

impl Time {
    /// When the node began.
    pub const ZERO: Self = Self(0);
    /// Never.
    pub const MAX: Self = Self(u64::MAX);

    /// How long after `earlier` this is; nothing if it is not after it.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// So much earlier, at the earliest the beginning.
    pub fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// For ever.
    pub const MAX: Self = Self(u64::MAX);

    /// From seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// From microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// This many times as long, at most for ever.
    pub fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// Less `other`, at least nothing.
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// As seconds, for people.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From MiB.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// From GiB.
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// Less `other`, at least nothing.
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// How long these take at so many bytes a second.
    pub fn at(self, bytes_per_second: u64) -> Span {
        let nanos = u128::from(self.0) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Ratio {
    /// All of it.
    pub const ONE: Self = Self(1_000_000);
    /// None of it.
    pub const ZERO: Self = Self(0);

    /// From per cent.
    pub const fn from_percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// This share of a length of time.
    pub fn of(self, span: Span) -> Span {
        Span(scale(span.0, u64::from(self.0), 1_000_000))
    }

    /// This share of an amount.
    pub fn of_bytes(self, bytes: Bytes) -> Bytes {
        Bytes(scale(bytes.0, u64::from(self.0), 1_000_000))
    }

    /// The length of time of which `span` is this share.
    pub fn whole(self, span: Span) -> Span {
        Span(scale(span.0, 1_000_000, u64::from(self.0.max(1))))
    }

    /// `part` as a share of `whole`, at most all of it.
    pub fn between(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        Self(scale(part.min(whole), 1_000_000, whole) as u32)
    }

    /// What is left.
    pub fn rest(self) -> Self {
        Self(1_000_000u32.saturating_sub(self.0))
    }
}

/// `value × times / per`, at most the largest number.
pub(crate) fn scale(value: u64, times: u64, per: u64) -> u64 {
    if let Some(product) = value.checked_mul(times) {
        return product / per;
    }
    u64::try_from(u128::from(value) * u128::from(times) / u128::from(per)).unwrap_or(u64::MAX)
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

macro_rules! amounts {
    ($($name:ident),*) => {$(
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $name {
            type Output = Self;
            /// Taking away more than there is is a mistake in the books, not a debt.
            fn sub(self, other: Self) -> Self {
                Self(self.0.checked_sub(other.0).expect("more is taken away than there is"))
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self(0), Add::add)
            }
        }
    )*};
}
amounts!(Span, Bytes);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GiB", self.0 as f64 / (1u64 << 30) as f64)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns >= 1_000_000_000 => write!(f, "{:.2} s", ns as f64 / 1e9),
            ns if ns >= 1_000_000 => write!(f, "{:.2} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.1} us", ns as f64 / 1e3),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}%", f64::from(self.0) / 1e4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_do_not_overflow() {
        assert_eq!(Ratio::from_percent(5).of(Span::from_secs(20)), Span::from_secs(1));
        assert_eq!(Ratio::from_percent(5).whole(Span::from_secs(1)), Span::from_secs(20));
        assert_eq!(Ratio::from_percent(50).of(Span::MAX), Span(u64::MAX / 2));
        assert_eq!(Ratio::between(1, 4), Ratio::from_percent(25));
        assert_eq!(Ratio::between(5, 4), Ratio::ONE);
        assert_eq!(Ratio::between(1, 0), Ratio::ZERO);
        assert_eq!(Ratio::from_percent(30).rest(), Ratio::from_percent(70));
    }

    #[test]
    fn moving_takes_bytes_over_bandwidth() {
        assert_eq!(Bytes(12_000_000_000).at(12_000_000_000), Span::from_secs(1));
        assert_eq!(Bytes(u64::MAX).at(1), Span::MAX);
    }

    #[test]
    fn amounts_are_written_for_people() {
        assert_eq!(Bytes::from_mib(1536).to_string(), "1.50 GiB");
        assert_eq!(Span::from_millis(2_500).to_string(), "2.50 s");
        assert_eq!(Span::from_secs(1).to_string(), "1.00 s");
        assert_eq!(Span::from_micros(1_500).to_string(), "1.50 ms");
        assert_eq!(Span::from_millis(1).to_string(), "1.00 ms");
        assert_eq!(Span(1_500).to_string(), "1.5 us");
        assert_eq!(Ratio::from_percent(5).to_string(), "5.0%");
    }

    #[test]
    fn times_do_not_run_backwards() {
        assert_eq!(Time(5).since(Time(7)), Span::ZERO);
        assert_eq!(Time(7).since(Time(5)), Span(2));
        assert_eq!(Time(5).before(Span(7)), Time::ZERO);
        assert_eq!(Time::MAX + Span(1), Time::MAX);
    }
}
