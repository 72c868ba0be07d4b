//! A TOML document whose every value knows where it stands, and single values put in from outside.

use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file, counted from 1.
    Line(usize),
    /// Not in the file: given as `KEY=VALUE`.
    Given(String),
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What TOML can say, less dates, which no scenario has.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Truth(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(place: &Place, reason: impl Into<String>) -> Self {
        Self { place: place.clone(), reason: reason.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "{line}"),
            Self::Given(given) => f.write_str(given),
        }
    }
}

/// Reads a document.
pub(crate) fn parse(text: &str) -> Result<Node, Problem> {
    match DeTable::parse(text) {
        Ok(table) => Reader { text }.table(table.get_ref(), Place::Line(1)),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            Err(Problem::new(&Place::Line(line_of(text.as_bytes(), start)), error.message().replace('\n', "; "))
                .hint("this is no TOML: look for a quote, a bracket or a `=` that is missing, and for keys given twice"))
        }
    }
}

/// Puts one value in, over what is there. A word of the path that names a list stands for all of it.
pub(crate) fn put(root: &mut Node, path: &str, text: &str) -> Result<(), Problem> {
    let place = Place::Given(format!("{path}={text}"));
    let value = match (text.parse(), text.parse(), text.parse()) {
        (Ok(integer), _, _) => Value::Integer(integer),
        (_, Ok(number), _) => Value::Number(number),
        (_, _, Ok(truth)) => Value::Truth(truth),
        _ => Value::Text(text.into()),
    };
    let words: Vec<&str> = path.split('.').collect();
    if words.iter().any(|word| word.is_empty()) {
        return Err(Problem::new(&place, "a part of the key is empty")
            .hint("write for example gpu.physics.switch=100us"));
    }
    put_at(root, &words, &Node { place, value })
}

fn put_at(node: &mut Node, words: &[&str], new: &Node) -> Result<(), Problem> {
    let Some((word, rest)) = words.split_first() else {
        *node = new.clone();
        return Ok(());
    };
    match &mut node.value {
        Value::List(all) => all.iter_mut().try_for_each(|one| put_at(one, words, new)),
        Value::Table(entries) => {
            let there = entries.iter().position(|entry| entry.key == *word).unwrap_or_else(|| {
                let empty = Node { place: new.place.clone(), value: Value::Table(Vec::new()) };
                entries.push(Entry { key: (*word).into(), place: new.place.clone(), node: empty });
                entries.len() - 1
            });
            put_at(&mut entries[there].node, rest, new)
        }
        _ => Err(Problem::new(&new.place, format!("there is no `{word}` in a value that is no table"))
            .hint(format!("leave `.{word}` out, or write that value as a table in the file"))),
    }
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn place(&self, start: usize) -> Place {
        Place::Line(line_of(self.text.as_bytes(), start))
    }

    fn table(&self, table: &DeTable<'_>, place: Place) -> Result<Node, Problem> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            entries.push(Entry {
                key: key.get_ref().clone().into_owned(),
                place: self.place(key.span().start),
                node: self.node(value)?,
            });
        }
        Ok(Node { place, value: Value::Table(entries) })
    }

    fn node(&self, spanned: &Spanned<DeValue<'_>>) -> Result<Node, Problem> {
        let place = self.place(spanned.span().start);
        let value = match spanned.get_ref() {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => {
                    return Err(Problem::new(&place, format!("{} is too large", integer.as_str()))
                        .hint(format!("whole numbers end at {}", i64::MAX)));
                }
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Value::Number(number),
                Err(_) => return Err(Problem::new(&place, format!("{} is no number", number.as_str()))),
            },
            DeValue::Boolean(truth) => Value::Truth(*truth),
            DeValue::Datetime(_) => {
                return Err(Problem::new(&place, "a scenario has no dates")
                    .hint("write a length of time as in \"159s\""));
            }
            DeValue::Array(all) => {
                Value::List(all.iter().map(|one| self.node(one)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => return self.table(table, place),
        };
        Ok(Node { place, value })
    }
}

/// In which line the byte at `start` is, counted from 1.
pub(crate) fn line_of(text: &[u8], start: usize) -> usize {
    text[..start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'n>(node: &'n Node, key: &str) -> &'n Entry {
        let Value::Table(entries) = &node.value else { panic!("no table") };
        entries.iter().find(|entry| entry.key == key).expect("the key is there")
    }

    #[test]
    fn every_value_knows_its_line() {
        let root = parse("a = 1\n\n[b]\nc = [\n  \"x\",\n]\n").unwrap();
        assert_eq!(entry(&root, "a").place, Place::Line(1));
        let inner = entry(&entry(&root, "b").node, "c");
        assert_eq!(inner.place, Place::Line(4));
        let Value::List(all) = &inner.node.value else { panic!("no list") };
        assert_eq!(all[0].place, Place::Line(5));
    }

    #[test]
    fn what_is_no_toml_has_a_line_too() {
        let problem = parse("a = 1\nb = = 2\n").unwrap_err();
        assert_eq!(problem.place, Place::Line(2));
        assert!(!problem.reason.is_empty());
    }

    #[test]
    fn a_value_is_put_in_everywhere_its_path_leads() {
        let mut root = parse("[[job]]\nn = 1\n[[job]]\nm = 2\n").unwrap();
        put(&mut root, "job.n", "5").unwrap();
        put(&mut root, "settings.turn_min", "50ms").unwrap();
        let Value::List(jobs) = &entry(&root, "job").node.value else { panic!("no list") };
        for job in jobs {
            assert!(matches!(entry(job, "n").node.value, Value::Integer(5)));
        }
        let set = entry(&entry(&root, "settings").node, "turn_min");
        assert!(matches!(&set.node.value, Value::Text(text) if text == "50ms"));
        assert_eq!(set.node.place, Place::Given("settings.turn_min=50ms".into()));
        assert!(put(&mut root, "settings.turn_min.x", "1").is_err());
        assert!(put(&mut root, "a..b", "1").is_err());
    }
}
