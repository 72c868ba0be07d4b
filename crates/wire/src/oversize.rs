//! How much host memory there is for what GPUs cannot have, as people write it: `none`, `all`, or `64GiB`.

use crate::OVERSIZE_ALL;
use crate::quantity::{Bytes, QuantityError};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// See the module. [`OVERSIZE_ALL`] is as much as there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Oversize(pub u64);

impl FromStr for Oversize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "none" => Ok(Self(0)),
            "all" => Ok(Self(OVERSIZE_ALL)),
            _ => text.parse().map(|Bytes(bytes)| Self(bytes)),
        }
    }
}

impl TryFrom<String> for Oversize {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

impl fmt::Display for Oversize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none"),
            OVERSIZE_ALL => f.write_str("all"),
            bytes => Bytes(bytes).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_size_or_a_word() {
        assert_eq!("none".parse(), Ok(Oversize(0)));
        assert_eq!("all".parse(), Ok(Oversize(OVERSIZE_ALL)));
        assert_eq!("64GiB".parse(), Ok(Oversize(64 << 30)));
        assert!("64".parse::<Oversize>().is_err() && "some".parse::<Oversize>().is_err());
        for text in ["none", "all", "64.0 GiB"] {
            let compact = text.replace(' ', "");
            assert_eq!(compact.parse::<Oversize>().unwrap().to_string(), text);
        }
    }
}
