//! The scenarios that come with rota: the files of `scenarios/`, in the program itself so that they are there anywhere.

use super::Scenario;
use super::file::{self, FileError, Given};
use super::nearest::nearest;
use std::path::Path;
use thiserror::Error;

macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

/// Name and text of each, in the order in which they are listed.
const ALL: &[(&str, &str)] = builtin![
    "seed-4x12",
    "h200-4x12",
    "h200-4x12-long",
    "spare-4x12",
    "six-fit-three",
    "lc-alone",
    "lc-four-be",
    "lc-four-be-unhinted",
    "poisson-lc",
    "fair-two-users",
    "weights-3-1",
    "small-co-residents",
    "training-steps",
    "idle-gives-way",
    "bursty",
    "growing",
    "deaths",
    "faults",
    "gangs",
    "eight-gpus",
];

/// Why there is no scenario of that name.
#[derive(Debug, Error)]
pub enum FindError {
    /// The file, or a built-in scenario with what was put over it, is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// Neither a built-in scenario nor a file.
    #[error("there is no scenario `{name}`, built in or as a file\nhint: {hint}")]
    Unknown {
        /// What was looked for.
        name: String,
        /// What may have been meant.
        hint: String,
    },
}

/// The names of all that are built in.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// A built-in scenario by its name, or else that of a file.
pub fn find(wanted: &str, given: &[Given]) -> Result<Scenario, FindError> {
    if let Some((name, text)) = ALL.iter().find(|(name, _)| *name == wanted) {
        return Ok(file::parse(name, &format!("scenarios/{name}.toml"), text, given)?);
    }
    let path = Path::new(wanted);
    if path.exists() || wanted.contains('/') || wanted.ends_with(".toml") {
        return Ok(file::read(path, given)?);
    }
    let hint = match nearest(wanted, names()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "see them all with `rota sim list`, or name a file".into(),
    };
    Err(FindError::Unknown { name: wanted.into(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_can_be_read() {
        for name in names() {
            let scenario = find(name, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, name);
            assert!(!scenario.about.contains('\n'), "{name}");
        }
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        for file in std::fs::read_dir(folder).expect("the folder is there") {
            let path = file.expect("it can be listed").path();
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            assert!(
                path.extension().is_none_or(|kind| kind != "toml") || names().any(|known| known == name),
                "{name}"
            );
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_guessed() {
        let error = find("seed-4x2", &[]).unwrap_err().to_string();
        assert!(error.contains("did you mean `seed-4x12`?"), "{error}");
        let error = find("something else", &[]).unwrap_err().to_string();
        assert!(error.contains("rota sim list"), "{error}");
        assert!(matches!(find("./nowhere.toml", &[]), Err(FindError::File(FileError::Unreadable { .. }))));
    }
}
