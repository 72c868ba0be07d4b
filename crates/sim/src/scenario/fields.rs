//! Reading a table key by key: every key is taken once, and what nobody took is unknown.

use super::document::{Entry, Node, Place, Problem, Value};
use super::nearest::nearest;
use super::quantity::{BYTES, Kind, RATE, SHARE, SPAN};
use sched::{Bytes, Ratio, Span};
use std::ops::RangeInclusive;

/// A table that is being read.
pub(crate) struct Fields<'n> {
    /// How people call this table.
    name: &'static str,
    place: Place,
    entries: &'n [Entry],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    pub(crate) fn of(name: &'static str, node: &'n Node) -> Result<Self, Problem> {
        match &node.value {
            Value::Table(entries) => Ok(Self { name, place: node.place.clone(), entries, known: Vec::new() }),
            _ => Err(Problem::new(&node.place, format!("{name} is not a table"))
                .hint("write keys and values below it, or between { and }")),
        }
    }

    /// Where the table stands.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Where a key stands, or the table if it does not have it.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        self.find(key).map_or_else(|| self.place.clone(), |entry| entry.node.place.clone())
    }

    fn find(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of a key, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.knows(key);
        self.find(key).map(|entry| &entry.node)
    }

    fn knows(&mut self, key: &'static str) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    /// The value of a key that has to be there.
    pub(crate) fn need(&mut self, key: &'static str, example: &str) -> Result<&'n Node, Problem> {
        let missing = || Problem::new(&self.place, format!("{} has no `{key}`", self.name));
        match self.find(key) {
            Some(entry) => {
                self.knows(key);
                Ok(&entry.node)
            }
            None => Err(missing().hint(format!("add for example {key} = {example}"))),
        }
    }

    /// All have been taken that are known: what is left is a mistake.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        let Some(unknown) = self.entries.iter().find(|entry| !self.known.contains(&entry.key.as_str()))
        else {
            return Ok(());
        };
        let problem = Problem::new(&unknown.place, format!("unknown key `{}` in {}", unknown.key, self.name));
        Err(match nearest(&unknown.key, self.known.iter().copied()) {
            Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
            None => problem.hint(format!("known keys are {}", self.known.join(", "))),
        })
    }

    /// Sets `to` if the key is there.
    pub(crate) fn span(&mut self, key: &'static str, to: &mut Span) -> Result<(), Problem> {
        self.quantity(key, &SPAN, |nanos| *to = Span(nanos))
    }

    /// Sets `to` if the key is there.
    pub(crate) fn bytes(&mut self, key: &'static str, to: &mut Bytes) -> Result<(), Problem> {
        self.quantity(key, &BYTES, |bytes| *to = Bytes(bytes))
    }

    /// Sets `to` if the key is there.
    pub(crate) fn rate(&mut self, key: &'static str, to: &mut u64) -> Result<(), Problem> {
        self.quantity(key, &RATE, |per_second| *to = per_second)?;
        match (self.find(key), *to) {
            (Some(entry), 0) => {
                Err(Problem::new(&entry.node.place, format!("`{key}` is zero, so nothing would ever move"))
                    .hint(format!("write {} as in {}", RATE.name, RATE.example)))
            }
            _ => Ok(()),
        }
    }

    /// Sets `to` if the key is there. Any share, also more than all.
    pub(crate) fn ratio(&mut self, key: &'static str, to: &mut Ratio) -> Result<(), Problem> {
        self.quantity(key, &SHARE, |millionths| *to = Ratio(millionths as u32))
    }

    /// Sets `to` if the key is there. A share of something: at most all of it.
    pub(crate) fn part(&mut self, key: &'static str, to: &mut Ratio) -> Result<(), Problem> {
        self.ratio(key, to)?;
        match self.find(key) {
            Some(entry) if *to > Ratio::ONE => {
                Err(Problem::new(&entry.node.place, format!("`{key}` is {to}, more than all of it"))
                    .hint("a share is at most \"100%\""))
            }
            _ => Ok(()),
        }
    }

    /// Sets `to` if the key is there, to a whole number of at least 1.
    pub(crate) fn count(&mut self, key: &'static str, to: &mut u64, max: u64) -> Result<(), Problem> {
        self.whole(key, to, 1..=max)
    }

    /// The same, from 0.
    pub(crate) fn number(&mut self, key: &'static str, to: &mut u64, max: u64) -> Result<(), Problem> {
        self.whole(key, to, 0..=max)
    }

    fn whole(&mut self, key: &'static str, to: &mut u64, bounds: RangeInclusive<u64>) -> Result<(), Problem> {
        if let Some(node) = self.take(key) {
            *to = whole(key, node, bounds)?;
        }
        Ok(())
    }

    /// The same, for smaller numbers.
    pub(crate) fn count_u32(&mut self, key: &'static str, to: &mut u32, max: u32) -> Result<(), Problem> {
        let mut wide = u64::from(*to);
        self.count(key, &mut wide, u64::from(max))?;
        *to = wide as u32;
        Ok(())
    }

    /// Sets `to` if the key is there.
    pub(crate) fn truth(&mut self, key: &'static str, to: &mut bool) -> Result<(), Problem> {
        match self.take(key) {
            None => Ok(()),
            Some(Node { value: Value::Truth(truth), .. }) => {
                *to = *truth;
                Ok(())
            }
            Some(node) => Err(Problem::new(&node.place, format!("`{key}` is neither true nor false"))
                .hint(format!("write {key} = true or {key} = false"))),
        }
    }

    /// One of a few words, if the key is there.
    pub(crate) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        to: &mut T,
        words: &[(&str, T)],
    ) -> Result<(), Problem> {
        let Some(node) = self.take(key) else { return Ok(()) };
        let known = || words.iter().map(|(word, _)| *word);
        let text = text(key, node)?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => {
                *to = *value;
                Ok(())
            }
            None => {
                let problem = Problem::new(&node.place, format!("`{key}` has the unknown value \"{text}\""));
                Err(match nearest(text, known()) {
                    Some(meant) => problem.hint(format!("did you mean \"{meant}\"?")),
                    None => problem.hint(format!("known are {}", known().collect::<Vec<_>>().join(", "))),
                })
            }
        }
    }

    fn quantity(&mut self, key: &'static str, kind: &Kind, set: impl FnOnce(u64)) -> Result<(), Problem> {
        if let Some(node) = self.take(key) {
            set(quantity(key, node, kind)?);
        }
        Ok(())
    }
}

/// A quantity with its unit.
pub(crate) fn quantity(key: &str, node: &Node, kind: &Kind) -> Result<u64, Problem> {
    let written = match &node.value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        _ => {
            return Err(Problem::new(&node.place, format!("`{key}` is not {}", kind.name))
                .hint(format!("write it as in {}", kind.example)));
        }
    };
    kind.parse(&written)
        .map_err(|error| Problem::new(&node.place, format!("`{key}`: {error}")).hint(kind.hint(&error)))
}

/// A text that is not empty.
pub(crate) fn text<'n>(key: &str, node: &'n Node) -> Result<&'n str, Problem> {
    match &node.value {
        Value::Text(text) if !text.trim().is_empty() => Ok(text),
        Value::Text(_) => Err(Problem::new(&node.place, format!("`{key}` is empty"))
            .hint("write at least a letter between the quotes")),
        _ => Err(Problem::new(&node.place, format!("`{key}` is not a text")).hint("write it between quotes")),
    }
}

/// A whole number within bounds.
fn whole(key: &str, node: &Node, bounds: RangeInclusive<u64>) -> Result<u64, Problem> {
    let (min, max) = (bounds.start(), bounds.end());
    let reason = match &node.value {
        Value::Integer(number) => match u64::try_from(*number) {
            Ok(number) if bounds.contains(&number) => return Ok(number),
            Ok(number) if number > *max => format!("`{key}` is {number}, more than {max}"),
            _ => format!("`{key}` is {number}, less than {min}"),
        },
        _ => format!("`{key}` is not a whole number"),
    };
    Err(Problem::new(&node.place, reason).hint(format!("write a number from {min} to {max}")))
}

/// A list, or one that stands for itself.
pub(crate) fn all(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(all) => all,
        _ => std::slice::from_ref(node),
    }
}
