//! Lets a library that is put into other people's programs load where the C library is older than the one it was built with.
//!
//! A linker binds each function to the newest version that the C library of the machine has, and a loader that lacks that
//! version leaves the whole library out, with a line that nobody reads. None of these functions has changed since: they
//! were moved between files (`dlopen`, threads), or were there under other names (`stat64`). So every use of them, also
//! those of the standard library, is led here (`--wrap`), and goes on to the old version of the same function.
//!
//! A library that wants it calls [`link`] in its build script and names this crate (`use older_glibc as _;`). It then
//! needs glibc [`NEEDED`] or later.

mod calls;

/// The C library that is still needed: the first with destructors of threads (`__cxa_thread_atexit_impl`).
pub const NEEDED: (u32, u32) = (2, 18);

/// Functions that have an older version of the same name.
const RENAMED: &[&str] = &[
    "dladdr",
    "dlerror",
    "dlopen",
    "dlsym",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_getspecific",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
];

/// Functions that are made of others here.
const MADE: &[&str] = &["fstat64", "getrandom", "gettid", "lstat64", "stat64", "statx"];

/// Libraries that these functions were in before they were moved. Later ones have them still, with nothing in them.
const FORMER_LIBRARIES: &[&str] = &["libdl.so.2", "libpthread.so.0"];

/// In a build script: has the linker lead all uses here.
pub fn link() {
    for symbol in RENAMED.iter().chain(MADE) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={symbol}");
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed");
    for library in FORMER_LIBRARIES {
        println!("cargo:rustc-cdylib-link-arg=-l:{library}");
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,--pop-state");
}

/// Every version of the C library that a file names anywhere, as a loader would read it.
pub fn versions_named(file: &[u8]) -> Vec<(u32, u32)> {
    let mark = b"GLIBC_";
    let starts = file.windows(mark.len()).enumerate().filter(|(_, text)| text == mark).map(|(at, _)| at);
    starts
        .filter_map(|at| {
            let text =
                file[at + mark.len()..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
            let text: String = text.map(|&byte| char::from(byte)).collect();
            let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
            Some((numbers.next()??, numbers.next()??))
        })
        .collect()
}
