//! The built library in a process of its own: on a machine without a driver, and in front of a fake one.
//!
//! Each test runs this test program again with the library preloaded, and there runs the same test's second half.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::{Command, Output};

use cuda::CUresult;
use cuda::table::{FUNCTIONS, StreamVariant};

/// Set in the process with the library preloaded.
const INSIDE: &str = "ROTA_TEST_INSIDE";

/// The library under test: beside this program, or a folder above.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota_shim.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().expect("cargo builds the library before its tests").1
}

/// Runs `inside` in a new process with the library preloaded and these variables set; gives back what it wrote to stderr.
/// In that new process this is where it happens.
fn with_library(test: &str, variables: &[(&str, &str)], inside: impl FnOnce()) -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        inside();
        return None;
    }
    let Output { status, stdout, stderr } = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env_remove("ROTA_DRIVER")
        .env_remove("ROTA_DISABLE")
        .envs(variables.iter().copied())
        .env(INSIDE, "1")
        .env("LD_PRELOAD", library())
        .output()
        .expect("this program runs again");
    let stdout = String::from_utf8_lossy(&stdout);
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{test} with {variables:?}: {status}\n{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{test} did not run: {stdout}");
    Some(stderr)
}

/// Opens the library as programs do.
fn opened() -> *mut c_void {
    // SAFETY: a C string, and flags that dlopen knows.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "libcuda.so.1 is not there: the library was not preloaded");
    handle
}

fn address(symbol: &str) -> *mut c_void {
    let name = CString::new(symbol).expect("no NUL");
    // SAFETY: an open handle and a C string.
    unsafe { libc::dlsym(opened(), name.as_ptr()) }
}

/// The exported function, as a function pointer type. Calls need no `unsafe`: the tests know what they call.
macro_rules! function {
    ($symbol:literal, fn($($argument:ty),*)) => {{
        let address = address($symbol);
        assert!(!address.is_null(), "{} is not exported", $symbol);
        // SAFETY: each test names the type that the function has, and gives it arguments that are valid.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($argument),*) -> CUresult>(address) }
    }};
}

fn text_at<'a>(text: *const c_char) -> &'a CStr {
    assert!(!text.is_null());
    // SAFETY: not null, and the library promises a C string that stays.
    unsafe { CStr::from_ptr(text) }
}

/// Which file an address lies in.
fn file_of(address: *mut c_void) -> PathBuf {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` if it does not return 0, with a C string in it.
    unsafe {
        assert_ne!(libc::dladdr(address, info.as_mut_ptr()), 0);
        let name = CStr::from_ptr(info.assume_init().dli_fname);
        PathBuf::from(name.to_str().expect("the path is text"))
    }
}

/// Asks the exported cuGetProcAddress_v2: result, address, status.
fn resolve(name: &CStr, version: c_int, flags: u64) -> (CUresult, *mut c_void, c_int) {
    let resolver =
        function!("cuGetProcAddress_v2", fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int));
    let mut address = std::ptr::dangling_mut();
    let mut status = -1;
    let result = resolver(name.as_ptr(), &mut address, version, flags, &mut status);
    (result, address, status)
}

/// What must hold wherever there is no driver.
fn check_without_driver() {
    for function in FUNCTIONS {
        let address = address(function.symbol);
        assert!(!address.is_null(), "{} is not exported", function.symbol);
        assert_eq!(file_of(address), library(), "{}", function.symbol);
    }

    let init = function!("cuInit", fn(u32));
    assert_eq!(init(0), CUresult::NO_DEVICE);

    let get_version = function!("cuDriverGetVersion", fn(*mut c_int));
    let mut version = -1;
    assert_eq!(get_version(&mut version), CUresult::SUCCESS);
    assert_eq!(version, 0);
    assert_eq!(get_version(std::ptr::null_mut()), CUresult::INVALID_VALUE);

    let name = function!("cuGetErrorName", fn(CUresult, *mut *const c_char));
    let mut text = std::ptr::null();
    assert_eq!(name(CUresult::NO_DEVICE, &mut text), CUresult::SUCCESS);
    assert_eq!(text_at(text), c"CUDA_ERROR_NO_DEVICE");
    assert_eq!(name(CUresult(4242), &mut text), CUresult::INVALID_VALUE);
    assert!(text.is_null());
    assert_eq!(name(CUresult::NO_DEVICE, std::ptr::null_mut()), CUresult::INVALID_VALUE);

    let describe = function!("cuGetErrorString", fn(CUresult, *mut *const c_char));
    assert_eq!(describe(CUresult::NO_DEVICE, &mut text), CUresult::SUCCESS);
    assert_eq!(text_at(text), c"no CUDA device was found");

    let alloc = function!("cuMemAlloc_v2", fn(*mut u64, usize));
    let mut memory = 0;
    for _ in 0..2 {
        assert_eq!(alloc(&mut memory, 1 << 20), CUresult::NOT_INITIALIZED);
    }
    let launch = function!("cuStreamQuery", fn(*mut c_void));
    for _ in 0..2 {
        assert_eq!(launch(std::ptr::null_mut()), CUresult::NOT_INITIALIZED);
    }

    let resolver =
        function!("cuGetProcAddress_v2", fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int));
    let (null, nowhere) = (std::ptr::null(), std::ptr::null_mut());
    let mut place = std::ptr::null_mut();
    assert_eq!(resolver(null, &mut place, 12000, 0, nowhere), CUresult::INVALID_VALUE);
    assert_eq!(
        resolver(c"cuInit".as_ptr(), std::ptr::null_mut(), 12000, 0, nowhere),
        CUresult::INVALID_VALUE
    );
    assert_eq!(resolver(c"cuInit".as_ptr(), &mut place, 12000, 0, nowhere), CUresult::SUCCESS);
    assert_eq!(place, address("cuInit"));

    let resolver = function!("cuGetProcAddress", fn(*const c_char, *mut *mut c_void, c_int, u64));
    assert_eq!(resolver(c"cuMemAlloc".as_ptr(), &mut place, 11030, 0), CUresult::SUCCESS);
    assert_eq!(place, address("cuMemAlloc_v2"));
    assert_eq!(resolver(c"cuNone".as_ptr(), &mut place, 11030, 0), CUresult::NOT_FOUND);

    let own = |symbol| (CUresult::SUCCESS, address(symbol), 0);
    assert_eq!(resolve(c"cuMemAlloc", 2000, 0), own("cuMemAlloc"));
    assert_eq!(resolve(c"cuMemAlloc", 12000, 0), own("cuMemAlloc_v2"));
    assert_eq!(resolve(c"cuLaunchKernel", 12000, 2), own("cuLaunchKernel_ptsz"));
    let none = std::ptr::null_mut();
    assert_eq!(resolve(c"cuMemCreate", 9000, 0), (CUresult::SUCCESS, none, 2));
    assert_eq!(resolve(c"cuNoSuchFunction", 12000, 0), (CUresult::SUCCESS, none, 1));
}

/// Whether this machine has a driver, which the tests without one cannot hide.
fn has_driver() -> bool {
    std::env::var_os(INSIDE).is_none() && cuda::Library::find(None).is_ok()
}

#[test]
fn without_a_driver() {
    if has_driver() {
        eprintln!("not run: this machine has a driver");
        return;
    }
    if let Some(stderr) = with_library("without_a_driver", &[], check_without_driver) {
        assert!(!stderr.contains("rota"), "a machine without a GPU is nothing to tell about: {stderr}");
    }
}

#[test]
fn without_a_driver_switched_off() {
    if has_driver() {
        eprintln!("not run: this machine has a driver");
        return;
    }
    with_library("without_a_driver_switched_off", &[("ROTA_DISABLE", "1")], check_without_driver);
}

#[test]
fn with_a_driver_that_is_not_there() {
    let variables = [("ROTA_DRIVER", "/nonexistent")];
    if let Some(stderr) = with_library("with_a_driver_that_is_not_there", &variables, check_without_driver) {
        let notices: Vec<&str> = stderr.lines().filter(|line| line.contains("rota")).collect();
        assert_eq!(notices.len(), 1, "{stderr}");
        assert!(notices[0].contains("ROTA_DRIVER=/nonexistent cannot be used: no such file"), "{stderr}");
    }
}

/// Compiles the fake driver, unless already inside; gives back its path and the folder that keeps it.
fn fake_driver() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libcuda.so.1").to_str().expect("text").to_owned();
    if std::env::var_os(INSIDE).is_none() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fake_driver.c");
        // Like the real driver: the same name as the library under test, and calls among its own functions
        // that nobody can intercept.
        let status = Command::new("cc")
            .args([
                "-O1",
                "-shared",
                "-fPIC",
                "-Wl,-soname,libcuda.so.1",
                "-Wl,-Bsymbolic",
                "-o",
                &path,
                source,
            ])
            .status()
            .expect("a C compiler is installed");
        assert!(status.success());
    }
    (folder, path)
}

/// Six arguments in registers, six on the stack.
fn call_with_integers() {
    let call =
        function!("cuTensorMapEncodeTiled", fn(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64));
    let [a, b, c, d, e, f, g, h, i, j, k, l] =
        std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as i64 + 1));
    // Twice: the first call finds the function, the second goes straight there.
    for _ in 0..2 {
        let result = call(a, b, c, d, e, f, g, h, i, j, k, l);
        assert_eq!(result.0, 42, "1000 + n: argument n arrived wrong");
    }
}

/// Eight floating-point arguments in registers, two on the stack, and pointers among them.
fn call_with_fractions() {
    let call = function!(
        "cuTexRefSetMipmapLevelClamp",
        fn(f64, f64, *mut c_void, f64, f64, f64, f64, f64, f64, f64, f64, *mut *mut c_void)
    );
    for _ in 0..2 {
        let mut seen: *mut c_void = std::ptr::null_mut();
        let given: *mut c_void = (&raw mut seen).cast();
        let result = call(0.5, 1.5, given, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, &mut seen);
        assert_eq!(result.0, 43, "1000 + n: argument n arrived wrong");
        assert_eq!(seen, given);
    }
}

/// In more streams than have slots, from several threads: some launches find their slot at once, others do not.
fn launch_in_streams() {
    let launch = function!("cuLaunchKernel", fn(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64));
    let [a, b, c, d, e, f, g, h, _, j, k] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as i64 + 1));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for stream in (0..200).chain(0..200) {
                    let result = launch(a, b, c, d, e, f, g, h, stream, j, k);
                    assert_eq!(i64::from(result.0), 42 + stream, "1000 + n: argument n arrived wrong");
                }
            });
        }
    });
    let launch = function!("cuLaunchKernelEx", fn(*const u64, usize, usize, usize));
    for stream in 0..4 {
        assert_eq!(u64::from(launch([0, 0, 0, 0, stream].as_ptr(), 0, 0, 0).0), 42 + stream);
    }
    assert_eq!(launch(std::ptr::null(), 0, 0, 0).0, 1, "the driver's own answer");
}

#[test]
fn launches_arrive_as_they_were_made() {
    let (_folder, path) = fake_driver();
    with_library("launches_arrive_as_they_were_made", &[("ROTA_DRIVER", &path)], launch_in_streams);
}

// The fake driver spoils all argument registers when it is opened, in the first call of a process: hence two tests.

#[test]
fn integers_arrive_as_they_were_given() {
    let (_folder, path) = fake_driver();
    with_library("integers_arrive_as_they_were_given", &[("ROTA_DRIVER", &path)], call_with_integers);
}

#[test]
fn fractions_arrive_as_they_were_given() {
    let (_folder, path) = fake_driver();
    with_library("fractions_arrive_as_they_were_given", &[("ROTA_DRIVER", &path)], call_with_fractions);
}

fn check_answers_of_the_fake_driver() {
    let init = function!("cuInit", fn(u32));
    assert_eq!(init(0), CUresult::SUCCESS);
    let get_version = function!("cuDriverGetVersion", fn(*mut c_int));
    let mut version = 0;
    assert_eq!(get_version(&mut version), CUresult::SUCCESS);
    assert_eq!(version, 12080);
    let name = function!("cuGetErrorName", fn(CUresult, *mut *const c_char));
    let mut text = std::ptr::null();
    assert_eq!(name(CUresult(5), &mut text), CUresult(5));
    assert_eq!(text_at(text), c"FAKE");
    // Not in the fake driver.
    let missing = function!("cuStreamSynchronize", fn(*mut c_void));
    assert_eq!(missing(std::ptr::null_mut()), CUresult::NOT_FOUND);
}

#[test]
fn the_driver_answers_where_there_is_one() {
    let (_folder, path) = fake_driver();
    let test = "the_driver_answers_where_there_is_one";
    with_library(test, &[("ROTA_DRIVER", &path)], check_answers_of_the_fake_driver);
}

#[test]
fn first_calls_of_many_threads_all_arrive() {
    let (_folder, path) = fake_driver();
    with_library("first_calls_of_many_threads_all_arrive", &[("ROTA_DRIVER", &path)], || {
        let query = function!("cuStreamQuery", fn(*mut c_void));
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 1..=8_usize {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let result = query(std::ptr::without_provenance_mut(thread));
                    assert_eq!(result.0 as usize, thread);
                });
            }
        });
    });
}

#[test]
fn the_resolver_hands_out_the_functions_of_the_library() {
    let (_folder, path) = fake_driver();
    let test = "the_resolver_hands_out_the_functions_of_the_library";
    with_library(test, &[("ROTA_DRIVER", &path)], || {
        let driver = PathBuf::from(std::env::var_os("ROTA_DRIVER").expect("set"));
        for function in FUNCTIONS {
            let name = CString::new(function.name).expect("no NUL");
            let flags = if function.stream == StreamVariant::PerThread { 2 } else { 0 };
            let (result, found, status) = resolve(&name, function.since as c_int, flags);
            // The real resolver's result and status, always.
            assert_eq!((result, status), (CUresult::SUCCESS, 7), "{function:?}");
            assert_eq!(found, address(function.symbol), "{function:?}");
        }
        // What the table does not know is the driver's.
        assert_eq!(file_of(resolve(c"cuOfTheFuture", 14000, 0).1), driver);
        // The version decides: an override of one symbol is not one of its siblings.
        assert_eq!(resolve(c"cuGetProcAddress", 12000, 0).1, address("cuGetProcAddress_v2"));
        assert_eq!(resolve(c"cuGetProcAddress", 11080, 0).1, address("cuGetProcAddress"));
        assert_eq!(resolve(c"cuInit", 13020, 0).1, address("cuInit"));
        // Nothing where the driver finds nothing, and its failures are its own.
        assert_eq!(resolve(c"cuFakeNothing", 12000, 0), (CUresult::SUCCESS, std::ptr::null_mut(), 7));
        assert_eq!(resolve(c"cuFakeFailure", 12000, 0).0, CUresult::NOT_FOUND);
    });
}

#[test]
fn switched_off_the_resolver_substitutes_nothing() {
    let (_folder, path) = fake_driver();
    let test = "switched_off_the_resolver_substitutes_nothing";
    with_library(test, &[("ROTA_DRIVER", &path), ("ROTA_DISABLE", "1")], || {
        let driver = PathBuf::from(std::env::var_os("ROTA_DRIVER").expect("set"));
        for name in [c"cuInit", c"cuMemAlloc", c"cuLaunchKernel"] {
            assert_eq!(file_of(resolve(name, 12000, 0).1), driver, "{name:?}");
        }
        check_answers_of_the_fake_driver();
    });
}

#[test]
fn another_copy_of_the_library_is_not_taken_for_the_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("libcuda.so.1");
    if std::env::var_os(INSIDE).is_none() {
        std::fs::copy(library(), &copy).expect("copied");
    }
    let test = "another_copy_of_the_library_is_not_taken_for_the_driver";
    let variables = [("ROTA_DRIVER", copy.to_str().expect("text"))];
    let stderr = with_library(test, &variables, || {
        let init = function!("cuInit", fn(u32));
        assert_eq!(init(0), CUresult::NO_DEVICE);
    });
    if let Some(stderr) = stderr {
        assert!(stderr.contains("another copy of rota's own library"), "{stderr}");
    }
}
