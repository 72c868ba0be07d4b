//! Which GPUs to share.

use mover::cuda_device::Which;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// See the module.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub enum Gpus {
    /// All that this process sees.
    #[default]
    All,
    /// These, in this order.
    These(Vec<Which>),
}

/// Why a text does not name GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpusError {
    /// One of them is neither.
    #[error("{0:?} is neither the index of a GPU nor its UUID, as in 0 or GPU-…; `all` means every GPU")]
    Unreadable(String),
    /// One of them is named again.
    #[error("GPU {0} is named twice")]
    Twice(String),
}

impl FromStr for Gpus {
    type Err = GpusError;

    fn from_str(text: &str) -> Result<Self, GpusError> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let mut these = Vec::new();
        for name in text.split(',').map(str::trim) {
            let one = match name.parse() {
                Ok(index) if index >= 0 => Which::Index(index),
                _ if name.starts_with("GPU-") => Which::Uuid(name.to_owned()),
                _ => return Err(GpusError::Unreadable(name.to_owned())),
            };
            if these.contains(&one) {
                return Err(GpusError::Twice(name.to_owned()));
            }
            these.push(one);
        }
        Ok(Self::These(these))
    }
}

impl TryFrom<String> for Gpus {
    type Error = GpusError;

    fn try_from(text: String) -> Result<Self, GpusError> {
        text.parse()
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::These(these) = self else { return f.write_str("all") };
        for (number, one) in these.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match one {
                Which::Index(index) => write!(f, "{comma}{index}")?,
                Which::Uuid(uuid) => write!(f, "{comma}{uuid}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_index_and_by_uuid() {
        for text in ["all", "0", "0,2", "GPU-a,1"] {
            assert_eq!(text.parse::<Gpus>().unwrap().to_string(), text);
        }
        assert_eq!(" 1, 0 ".parse::<Gpus>().unwrap().to_string(), "1,0");
        for text in ["", "one", "-1", "0,", "MIG-1"] {
            assert!(matches!(text.parse::<Gpus>(), Err(GpusError::Unreadable(_))), "{text:?}");
        }
        assert_eq!("0,1,0".parse::<Gpus>(), Err(GpusError::Twice("0".into())));
    }
}
