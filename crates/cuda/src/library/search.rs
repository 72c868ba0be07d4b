//! Where the real `libcuda.so.1` is looked for, and other libraries of NVIDIA's, and in which order.
//!
//! 1. the path in `ROTA_DRIVER`, or the variable of another library: if set, nothing else is tried;
//! 2. the directories in `LD_LIBRARY_PATH`;
//! 3. the system's cache of libraries, `/etc/ld.so.cache`;
//! 4. the usual directories.
//!
//! A candidate that is the calling library itself, or another copy of it, is passed over.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Library, LibraryError, Sought, cache};

/// The environment variable that names the real driver's file.
pub const DRIVER_VARIABLE: &str = "ROTA_DRIVER";

const CACHE: &str = "/etc/ld.so.cache";

const DIRECTORIES: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"];

/// No more candidates than this are tried; a longer `LD_LIBRARY_PATH` is a mistake.
const CANDIDATES_MAX: usize = 1024;

/// A place that was looked at in vain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tried {
    /// The candidate's path.
    pub path: PathBuf,
    /// Why it was not taken.
    pub reason: String,
    /// There is nothing at this path.
    pub absent: bool,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.reason)
    }
}

/// A search for a real library: all it depends on.
#[derive(Clone, Debug)]
pub struct Search {
    /// What is looked for.
    pub sought: &'static Sought,
    /// The path in its variable.
    pub chosen: Option<PathBuf>,
    /// The value of `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// The system's cache of libraries.
    pub cache: PathBuf,
    /// The usual directories.
    pub directories: Vec<PathBuf>,
    /// The calling library's file.
    pub own: Option<PathBuf>,
}

impl Search {
    /// The search as this process's environment and system have it.
    pub fn from_environment(sought: &'static Sought, own: Option<&Path>) -> Search {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Search {
            sought,
            chosen: set(sought.variable).map(PathBuf::from),
            library_path: set("LD_LIBRARY_PATH"),
            cache: PathBuf::from(CACHE),
            directories: DIRECTORIES.iter().map(PathBuf::from).collect(),
            own: own.map(Path::to_owned),
        }
    }

    /// Opens the first candidate that is usable.
    pub fn run(&self) -> Result<Library, LibraryError> {
        let sought = self.sought;
        if let Some(chosen) = &self.chosen {
            // A bare name would be looked up by the dynamic linker and could give the caller back.
            let path = if chosen.is_absolute() { chosen.clone() } else { Path::new(".").join(chosen) };
            return self.try_one(&path).map_err(|tried| LibraryError::Chosen {
                sought,
                path: chosen.clone(),
                reason: tried.reason,
            });
        }
        let mut tried = Vec::new();
        for candidate in self.candidates() {
            match self.try_one(&candidate) {
                Ok(library) => return Ok(library),
                Err(reason) => tried.push(reason),
            }
        }
        Err(LibraryError::NotFound { sought, tried })
    }

    /// All candidates, in order, each once.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let soname = self.sought.soname;
        let listed = self.library_path.iter().flat_map(|list| {
            let directories = list.as_bytes().split(|byte| matches!(byte, b':' | b';'));
            // The dynamic linker takes an empty entry for the working directory; a driver is never there.
            let directories = directories.filter(|directory| !directory.is_empty());
            directories.map(|directory| PathBuf::from(OsString::from_vec(directory.to_vec())).join(soname))
        });
        // Without a readable cache there is nothing to take from it, and the usual directories follow.
        let cached = cache::read(&self.cache, soname).unwrap_or_default();
        let usual = self.directories.iter().map(|directory| directory.join(soname));
        let mut candidates = Vec::new();
        for candidate in listed.chain(cached).chain(usual) {
            // As with ROTA_DRIVER: never a bare name.
            let candidate = if candidate.is_absolute() { candidate } else { Path::new(".").join(candidate) };
            if candidates.len() < CANDIDATES_MAX && !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    fn try_one(&self, path: &Path) -> Result<Library, Tried> {
        let tried = |reason: &str, absent| Tried { path: path.to_owned(), reason: reason.to_owned(), absent };
        let file = match fs::metadata(path) {
            Ok(file) => file,
            Err(error) => {
                let absent =
                    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory);
                let reason = if absent { "no such file".to_owned() } else { error.to_string() };
                return Err(tried(&reason, absent));
            }
        };
        let own = self.own.as_ref().and_then(|own| fs::metadata(own).ok());
        if own.is_some_and(|own| (own.dev(), own.ino()) == (file.dev(), file.ino())) {
            // Not a driver, hence as good as nothing there.
            return Err(tried("rota's own library", true));
        }
        let library = Library::open(path).map_err(|error| match error {
            LibraryError::Open { reason, .. } => tried(&reason, false),
            other => tried(&other.to_string(), false),
        })?;
        if library.symbol(self.sought.marker).is_some() {
            return Err(tried("another copy of rota's own library", true));
        }
        Ok(library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{DRIVER, SONAME};

    fn search() -> Search {
        Search {
            sought: &DRIVER,
            chosen: None,
            library_path: None,
            cache: PathBuf::from("/nonexistent/ld.so.cache"),
            directories: Vec::new(),
            own: None,
        }
    }

    /// A real library of this system, to stand for a driver.
    fn some_library() -> PathBuf {
        cache::read(Path::new(CACHE), "libc.so.6")
            .expect("this system has a cache of libraries")
            .into_iter()
            .next()
            .expect("the C library is in the cache")
    }

    #[test]
    fn order_is_library_path_then_usual_directories() {
        let search = Search {
            library_path: Some("/a::/b;c:/a".into()),
            directories: vec!["/usual".into(), "/b".into()],
            ..search()
        };
        let expected: Vec<PathBuf> =
            ["/a/libcuda.so.1", "/b/libcuda.so.1", "./c/libcuda.so.1", "/usual/libcuda.so.1"]
                .iter()
                .map(PathBuf::from)
                .collect();
        assert_eq!(search.candidates(), expected);
    }

    #[test]
    fn nothing_there_is_absence_and_lists_every_place() {
        let search = Search { directories: vec!["/no/one".into(), "/no/two".into()], ..search() };
        let error = search.run().expect_err("nothing there");
        assert!(error.is_absence());
        let text = error.to_string();
        assert!(text.contains("/no/one/libcuda.so.1 (no such file)"), "{text}");
        assert!(text.contains("/no/two/libcuda.so.1 (no such file)"), "{text}");
    }

    #[test]
    fn the_chosen_one_is_the_only_one() {
        let search =
            Search { chosen: Some("/nonexistent".into()), directories: vec!["/usr/lib".into()], ..search() };
        let error = search.run().expect_err("no such file");
        assert!(!error.is_absence());
        let text = error.to_string();
        assert!(text.starts_with("ROTA_DRIVER=/nonexistent cannot be used: no such file"), "{text}");
    }

    #[test]
    fn the_chosen_one_is_opened() {
        let path = some_library();
        let found = Search { chosen: Some(path.clone()), ..search() }.run().expect("opens");
        assert_eq!(found.path(), path);
    }

    #[test]
    fn the_caller_itself_is_never_taken() {
        let path = some_library();
        let search = Search { chosen: Some(path.clone()), own: Some(path), ..search() };
        let text = search.run().expect_err("the caller itself").to_string();
        assert!(text.contains("rota's own library"), "{text}");
    }

    #[test]
    fn an_unusable_candidate_is_passed_over_but_not_absence() {
        let directory = std::env::temp_dir().join(format!("rota-search-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(SONAME), b"not a library").expect("a file");
        let result = Search { directories: vec![directory.clone()], ..search() }.run();
        fs::remove_dir_all(&directory).expect("removed");
        let error = result.expect_err("not a library");
        assert!(!error.is_absence());
        assert!(error.to_string().contains("libcuda.so.1 ("), "{error}");
    }
}
