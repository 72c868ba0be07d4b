//! How often to look at which memory of programs larger than their GPU changes, as people write it: `2s`, or `none`.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use wire::quantity::{QuantityError, Span};

/// Looks that come sooner than this would be most of what the bus does.
const LEAST: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Rehome {
    /// So often.
    Every(Duration),
    /// Never: all memory keeps the home that it was made in.
    Never,
}

/// Why a text is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RehomeError {
    /// It is no time.
    #[error(transparent)]
    NoTime(#[from] QuantityError),
    /// It is too short.
    #[error("every {0:?} is too often: 50ms is the least, or none")]
    TooShort(Duration),
}

impl Default for Rehome {
    fn default() -> Self {
        Self::Every(Duration::from_secs(2))
    }
}

impl Rehome {
    /// How often, if ever.
    pub fn every(self) -> Option<Duration> {
        match self {
            Self::Every(time) => Some(time),
            Self::Never => None,
        }
    }
}

impl FromStr for Rehome {
    type Err = RehomeError;

    fn from_str(text: &str) -> Result<Self, RehomeError> {
        if text == "none" {
            return Ok(Self::Never);
        }
        let Span(time) = text.parse()?;
        if time < LEAST { Err(RehomeError::TooShort(time)) } else { Ok(Self::Every(time)) }
    }
}

impl TryFrom<String> for Rehome {
    type Error = RehomeError;

    fn try_from(text: String) -> Result<Self, RehomeError> {
        text.parse()
    }
}

impl fmt::Display for Rehome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(time) => Span(*time).fmt(f),
            Self::Never => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_time_or_none() {
        assert_eq!("none".parse(), Ok(Rehome::Never));
        assert_eq!("2s".parse(), Ok(Rehome::default()));
        assert!(matches!("1ms".parse::<Rehome>(), Err(RehomeError::TooShort(_))));
        assert!("often".parse::<Rehome>().is_err());
        assert_eq!((Rehome::Never.every(), Rehome::Never.to_string().as_str()), (None, "none"));
        assert_eq!(Rehome::default().to_string().parse(), Ok(Rehome::default()));
    }
}
