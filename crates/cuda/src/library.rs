//! Opening the real driver library.
//!
//! [`Library`] is an opened shared library that is never closed: the driver does not survive being unloaded, and
//! pointers into it are everywhere. [`search`] finds the real `libcuda.so.1`, [`cache`] reads the system's list of libraries.
//!
//! All this must work inside a library that is itself called `libcuda.so.1`, so it never opens by bare name: the dynamic
//! linker would hand back the caller.

pub mod cache;
pub mod search;

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

pub use search::{Search, Tried};

/// The name every CUDA program asks for.
pub const SONAME: &str = "libcuda.so.1";

/// A symbol that rota's own `libcuda.so.1` exports, so that one copy of it never takes another for the real driver.
pub const SHIM_MARKER: &CStr = c"rota_shim_marker";

/// A library of NVIDIA's that rota puts one of its own in front of.
#[derive(Debug)]
pub struct Sought {
    /// The name that programs ask for.
    pub soname: &'static str,
    /// The environment variable that names the real one's file.
    pub variable: &'static str,
    /// A symbol that only rota's own has.
    pub marker: &'static CStr,
}

/// The driver.
pub static DRIVER: Sought = Sought { soname: SONAME, variable: search::DRIVER_VARIABLE, marker: SHIM_MARKER };

/// Why there is no library of NVIDIA's.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The dynamic linker refused.
    #[error("cannot open {}: {reason}", path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// What the dynamic linker said.
        reason: String,
    },
    /// The environment names one that cannot be used.
    #[error(
        "{}={} cannot be used: {reason}; unset it, or set it to the path of NVIDIA's {}",
        sought.variable,
        path.display(),
        sought.soname
    )]
    Chosen {
        /// What was looked for.
        sought: &'static Sought,
        /// The path it names.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// No place has a usable one.
    #[error("no usable NVIDIA driver library ({}) found; tried {}", sought.soname, list(tried))]
    NotFound {
        /// What was looked for.
        sought: &'static Sought,
        /// Where it was looked for, and what was wrong with each.
        tried: Vec<Tried>,
    },
}

impl LibraryError {
    /// Whether there simply is no driver on this machine, as opposed to one that cannot be used.
    pub fn is_absence(&self) -> bool {
        match self {
            LibraryError::NotFound { tried, .. } => tried.iter().all(|tried| tried.absent),
            LibraryError::Open { .. } | LibraryError::Chosen { .. } => false,
        }
    }
}

fn list(tried: &[Tried]) -> String {
    let each: Vec<String> = tried.iter().map(Tried::to_string).collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(", ") }
}

/// A shared library, open for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle names an object of the dynamic linker, which locks for itself, and it is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library with all its symbols resolved, visible to nobody else.
    pub fn open(path: impl AsRef<Path>) -> Result<Library, LibraryError> {
        let path = path.as_ref();
        let error = |reason: String| LibraryError::Open { path: path.to_owned(), reason };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| error("the path holds a NUL byte".to_owned()))?;
        // SAFETY: `name` is a C string. Opening runs the library's constructors, which is what the caller asks for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, path: path.to_owned() }),
            None => Err(error(last_error())),
        }
    }

    /// Finds and opens the real driver, as [`Search`] says. `own` is the file of the calling library, never to be
    /// taken for the driver.
    pub fn find(own: Option<&Path>) -> Result<Library, LibraryError> {
        Search::from_environment(&DRIVER, own).run()
    }

    /// The address of an exported symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open and `name` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What the dynamic linker said last in this thread.
fn last_error() -> String {
    // SAFETY: dlerror returns null or a C string that stays until this thread's next call of the dynamic linker.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the dynamic linker gave no reason".to_owned();
        }
        CStr::from_ptr(text)
    };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_and_finds_symbols() {
        let library = Library::open("libc.so.6").expect("the C library opens");
        assert!(library.symbol(c"malloc").is_some());
        assert!(library.symbol(c"cuInit").is_none());
    }

    #[test]
    fn says_what_failed() {
        let error = Library::open("/nonexistent/libcuda.so.1").expect_err("no such file");
        let text = error.to_string();
        assert!(text.starts_with("cannot open /nonexistent/libcuda.so.1: "), "{text}");
        assert!(Library::open("/a\0b").expect_err("a NUL").to_string().contains("NUL"));
    }
}
