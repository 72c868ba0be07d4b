//! The table of every public driver function, and the choice `cuGetProcAddress` makes among them.
//!
//! A function of the driver has one *name* (`cuMemAlloc`) and one or more exported *symbols*
//! (`cuMemAlloc`, `cuMemAlloc_v2`), because an incompatible change of its signature adds a symbol and
//! keeps the old one. Functions with an implicit stream have a second set of symbols, `_ptds` or `_ptsz`,
//! whose default stream belongs to the calling thread.
//!
//! The rows are in [`functions`](FUNCTIONS): the symbols that the driver exports on Linux up to
//! [`TABLE_VERSION`], with the interop functions for OpenGL, EGL and VDPAU and the profiler's. For each name the
//! n-th oldest version published for it belongs to its n-th oldest symbol; the two lists have the same
//! length for every name, so no version had to be guessed. Private functions (behind
//! `cuGetExportTable`) and the debugger's are not in it.
//!
//! This module holds facts about the driver's interface. It calls nothing.

mod functions;

pub use functions::FUNCTIONS;

/// The newest CUDA version whose functions are in the table.
pub const TABLE_VERSION: u32 = 13000;

/// Flag of `cuGetProcAddress`: prefer the symbols whose default stream belongs to the calling thread.
pub const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Which default stream a symbol means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamVariant {
    /// The function knows no default stream: one symbol for all.
    Any,
    /// The default stream is the one shared by the whole context.
    Legacy,
    /// The default stream is the calling thread's own.
    PerThread,
}

/// One exported symbol of the driver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Function {
    /// The symbol as exported, e.g. `cuMemcpyHtoD_v2_ptds`.
    pub symbol: &'static str,
    /// The name given to `cuGetProcAddress`, e.g. `cuMemcpyHtoD`.
    pub name: &'static str,
    /// The CUDA version that brought it: 1000 * major + 10 * minor.
    pub since: u32,
    /// Which default stream it means.
    pub stream: StreamVariant,
}

/// The function exported under exactly this symbol.
pub fn by_symbol(symbol: &str) -> Option<&'static Function> {
    index_of(symbol).map(|index| &FUNCTIONS[index])
}

/// Where in [`FUNCTIONS`] this symbol is.
pub fn index_of(symbol: &str) -> Option<usize> {
    FUNCTIONS.binary_search_by(|function| function.symbol.cmp(symbol)).ok()
}

/// The function that `cuGetProcAddress(name, cuda_version, flags)` chooses: the newest one that is not
/// newer than `cuda_version`, with the thread's own default stream if the flags ask for it and it exists.
pub fn lookup(name: &str, cuda_version: u32, flags: u64) -> Option<&'static Function> {
    let per_thread = flags & PER_THREAD_DEFAULT_STREAM != 0;
    named(name)
        .filter(|function| function.since <= cuda_version)
        .filter(|function| per_thread || function.stream != StreamVariant::PerThread)
        .max_by_key(|function| (function.stream == StreamVariant::PerThread, function.since))
}

/// All symbols of one name.
pub fn named(name: &str) -> impl Iterator<Item = &'static Function> {
    // Every symbol starts with its name, so those of one name are neighbours, with at most those of
    // longer names between them.
    let first = FUNCTIONS.partition_point(|function| function.symbol < name);
    FUNCTIONS[first..]
        .iter()
        .take_while(move |function| function.symbol.starts_with(name))
        .filter(move |function| function.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, version: u32, flags: u64) -> Option<&'static str> {
        lookup(name, version, flags).map(|function| function.symbol)
    }

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0].symbol < pair[1].symbol));
    }

    #[test]
    fn symbol_is_name_version_and_stream_variant() {
        for function in FUNCTIONS {
            let rest = function.symbol.strip_prefix(function.name);
            let rest = rest.unwrap_or_else(|| panic!("{function:?}: symbol must start with name"));
            let (rest, per_thread) = match rest.strip_suffix("_ptds").or(rest.strip_suffix("_ptsz")) {
                Some(rest) => (rest, true),
                None => (rest, false),
            };
            assert!(matches!(rest, "" | "_v2" | "_v3" | "_v4"), "{function:?}");
            assert_eq!(per_thread, function.stream == StreamVariant::PerThread, "{function:?}");
            assert!((2000..=TABLE_VERSION).contains(&function.since), "{function:?}");
            assert_eq!(function.since % 10, 0, "{function:?}");
        }
    }

    #[test]
    fn a_name_has_either_one_variant_or_both() {
        for function in FUNCTIONS {
            let both = named(function.name).any(|other| other.stream == StreamVariant::PerThread);
            assert_eq!(both, function.stream != StreamVariant::Any, "{function:?}");
        }
    }

    #[test]
    fn a_later_symbol_is_of_a_later_version() {
        for function in FUNCTIONS {
            let same = named(function.name)
                .filter(|other| other.stream == function.stream && other.symbol != function.symbol);
            for other in same {
                // `x` < `x_v2` < `x_v3`, and `x_ptsz` < `x_v2_ptsz`.
                let later = function.symbol < other.symbol;
                assert_eq!(later, function.since < other.since, "{function:?} {other:?}");
            }
        }
    }

    #[test]
    fn version_chooses_the_newest_not_newer() {
        assert_eq!(symbol("cuMemAlloc", 2000, 0), Some("cuMemAlloc"));
        assert_eq!(symbol("cuMemAlloc", 3010, 0), Some("cuMemAlloc"));
        assert_eq!(symbol("cuMemAlloc", 3020, 0), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemAlloc", 12000, 0), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuGetProcAddress", 11030, 0), Some("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 12000, 0), Some("cuGetProcAddress_v2"));
        assert_eq!(symbol("cuCtxCreate", 12000, 0), Some("cuCtxCreate_v3"));
        assert_eq!(symbol("cuCtxCreate", 13000, 0), Some("cuCtxCreate_v4"));
        assert_eq!(symbol("cuMemCreate", 10010, 0), None);
        assert_eq!(symbol("cuNoSuchFunction", 13000, 0), None);
        assert_eq!(symbol("cuMemAlloc_v2", 13000, 0), None);
        assert_eq!(symbol("", 13000, 0), None);
    }

    #[test]
    fn flag_chooses_the_per_thread_variant() {
        assert_eq!(symbol("cuLaunchKernel", 7000, 0), Some("cuLaunchKernel"));
        assert_eq!(symbol("cuLaunchKernel", 7000, 1), Some("cuLaunchKernel"));
        assert_eq!(symbol("cuLaunchKernel", 7000, 2), Some("cuLaunchKernel_ptsz"));
        assert_eq!(symbol("cuMemcpyHtoD", 12000, 2), Some("cuMemcpyHtoD_v2_ptds"));
        // Asked for a version older than the variant, or for a function without one: the legacy symbol.
        assert_eq!(symbol("cuMemcpyHtoD", 4000, 2), Some("cuMemcpyHtoD_v2"));
        assert_eq!(symbol("cuMemAlloc", 12000, 2), Some("cuMemAlloc_v2"));
    }
}
