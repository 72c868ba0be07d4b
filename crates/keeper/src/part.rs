//! Parts of the arena, and how they are written: `64GiB`, or `64GiB@1` for one that is near to node 1.

use crate::names::Node;
use std::fmt;
use std::str::FromStr;
use wire::quantity::Bytes;

/// A part of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// How large: whole blocks.
    pub bytes: u64,
    /// The node that it is to be near to.
    pub node: Option<Node>,
}

/// Why a text is no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Its size cannot be read.
    #[error("{0}")]
    Size(String),
    /// Its node cannot be.
    #[error("no node is called {0:?}: they have numbers")]
    Node(String),
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Part, PartError> {
        let (size, node) = match text.split_once('@') {
            Some((size, node)) => {
                let number = node.parse().map_err(|_| PartError::Node(node.to_owned()))?;
                (size, Some(Node(number)))
            }
            None => (text, None),
        };
        let bytes: Bytes = size.parse().map_err(|error| PartError::Size(format!("{error}")))?;
        Ok(Part { bytes: bytes.0, node })
    }
}

impl fmt::Display for Part {
    /// In bytes: nothing is rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{}B@{}", self.bytes, node.0),
            None => write!(f, "{}B", self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_size_and_perhaps_a_node() {
        assert_eq!("4MiB".parse(), Ok(Part { bytes: 4 << 20, node: None }));
        assert_eq!("1GiB@3".parse(), Ok(Part { bytes: 1 << 30, node: Some(Node(3)) }));
        for wrong in ["", "@1", "1GiB@", "1GiB@-1", "many"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for node in [None, Some(Node(7))] {
            let part = Part { bytes: 5 << 21, node };
            assert_eq!(part.to_string().parse(), Ok(part));
        }
    }
}
