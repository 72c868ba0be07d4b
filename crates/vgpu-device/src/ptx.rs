//! PTX text: entries with the layout of their parameters, and variables. Of code only that its instructions exist
//! ([`instructions`]): it is never run.

mod instructions;

use instructions::check_instructions;

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// It is no PTX at all.
    #[error("the image is no PTX text: it has no .version")]
    NotPtx,
    /// It is newer than this reader.
    #[error("the PTX is of version {0}, newer than 9.0")]
    Newer(String),
    /// It is PTX, but not as expected.
    #[error("the PTX cannot be understood: {0}")]
    Malformed(String),
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Offset and size of each parameter.
    pub parameters: Vec<(u32, u32)>,
}

/// A variable of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A module's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ptx {
    /// Kernels.
    pub entries: Vec<Entry>,
    /// Variables in device memory.
    pub variables: Vec<Variable>,
}

/// The newest major version.
const VERSION_MAX: u32 = 9;
/// Architectures that there are.
const TARGETS: std::ops::RangeInclusive<u32> = 10..=121;

/// The most entries and variables of one module.
const NAMES_MAX: usize = 256;

/// Reads a text.
pub fn parse(text: &str) -> Result<Ptx, PtxError> {
    let text = without_comments(text);
    let malformed = |what: &str| PtxError::Malformed(what.into());
    if !text.trim_start().starts_with(".version") {
        return Err(if text.contains(".version") {
            malformed("it does not begin with .version")
        } else {
            PtxError::NotPtx
        });
    }
    let after = |word: &str| {
        let rest = text.split(word).nth(1)?;
        rest.split(|c: char| c.is_whitespace() || c == ',').find(|part| !part.is_empty())
    };
    let version = after(".version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major > VERSION_MAX => return Err(PtxError::Newer(version.into())),
        Some(_) => {}
        None => return Err(malformed("its .version is no number")),
    }
    let target = after(".target").ok_or_else(|| malformed("it has no .target"))?;
    let architecture =
        target.trim_end_matches(['a', 'f']).strip_prefix("sm_").and_then(|sm| sm.parse::<u32>().ok());
    if !architecture.is_some_and(|sm| TARGETS.contains(&sm)) {
        return Err(malformed(&format!("there is no target {target}")));
    }
    check_instructions(&text)?;
    let mut ptx = Ptx::default();
    let mut depth = 0usize;
    let mut rest = text.as_str();
    // Statements at the outermost level: up to a semicolon, a brace, or, for an entry, its parameters.
    let mut statement = String::new();
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1).ok_or_else(|| malformed("a brace too many"))?;
                statement.clear();
            }
            '(' if depth == 0 && statement.contains(".entry") => {
                let end = rest.find(')').ok_or_else(|| malformed("parameters without an end"))?;
                let name = statement.split_whitespace().last().unwrap_or_default().to_owned();
                ptx.entries.push(Entry { name, parameters: parameters(&rest[..end])? });
                rest = &rest[end + 1..];
                statement = ".body".into();
            }
            ';' if depth == 0 => {
                ptx.variables.extend(variable(&statement));
                statement.clear();
            }
            _ if depth == 0 => statement.push(c),
            _ => {}
        }
    }
    if depth != 0 {
        return Err(malformed("a brace is missing"));
    }
    if ptx.entries.iter().any(|entry| entry.name.is_empty() || entry.name.starts_with('.')) {
        return Err(malformed("an entry without a name"));
    }
    if ptx.entries.len() > NAMES_MAX || ptx.variables.len() > NAMES_MAX {
        return Err(malformed("more entries or variables than the virtual device takes"));
    }
    Ok(ptx)
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
            out.push(' ');
        } else {
            out.push('/');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

fn parameters(text: &str) -> Result<Vec<(u32, u32)>, PtxError> {
    let mut offset = 0u32;
    let mut layout = Vec::new();
    for parameter in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let (size, align) =
            sized(parameter).ok_or_else(|| PtxError::Malformed(format!("the parameter `{parameter}`")))?;
        let (size, align) = (size as u32, align as u32);
        offset = offset.next_multiple_of(align);
        layout.push((offset, size));
        offset += size;
    }
    Ok(layout)
}

/// Size and alignment of a declaration: its type, times what stands in brackets behind its name.
fn sized(declaration: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let element = words.iter().find_map(|word| {
        Some(match *word {
            ".u8" | ".s8" | ".b8" => 1,
            ".u16" | ".s16" | ".b16" | ".f16" => 2,
            ".u32" | ".s32" | ".b32" | ".f32" => 4,
            ".u64" | ".s64" | ".b64" | ".f64" => 8,
            _ => return None,
        })
    })?;
    let align = words.iter().position(|word| *word == ".align");
    let align = match align {
        Some(at) => {
            words.get(at + 1)?.parse().ok().filter(|align: &u64| align.is_power_of_two() && *align <= 256)?
        }
        None => element,
    };
    let count: u64 = match (declaration.find('['), declaration.find(']')) {
        (Some(open), Some(close)) => declaration.get(open + 1..close)?.trim().parse().ok()?,
        _ => 1,
    };
    let bytes = element.checked_mul(count).filter(|bytes| *bytes <= u64::from(u32::MAX))?;
    Some((bytes, align))
}

fn variable(statement: &str) -> Option<Variable> {
    let words: Vec<&str> = statement.split_whitespace().collect();
    if !words.contains(&".global") {
        return None;
    }
    let declaration = statement.split('=').next()?;
    let name = declaration.split_whitespace().last()?.split('[').next()?.to_owned();
    let (bytes, _) = sized(declaration)?;
    Some(Variable { name, bytes })
}

#[cfg(test)]
mod tests;
