//! Gives the library its name, and writes the code that exports every driver function.
//!
//! From the table in the `cuda` crate and the lists beside this file comes `exports.rs`, included by `src/forward.rs`: a
//! function for each symbol that is not overridden, of the kind that the lists say, and the list of all exports with
//! their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use cuda::table::{self, FUNCTIONS, Function, StreamVariant};

const OVERRIDES: &str = "overrides.txt";
const GATED: &str = "gated.txt";
const LAUNCHED: &str = "launched.txt";
const QUIET: &str = "quiet.txt";

/// Functions whose arguments only a jump passes on as they are: structures by value, and numbers in vector registers.
const JUMPED: [&str; 7] = [
    "cuEGLStreamProducerPresentFrame",
    "cuIpcOpenEventHandle",
    "cuIpcOpenMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuParamSetf",
    "cuTexRefSetMipmapLevelBias",
    "cuTexRefSetMipmapLevelClamp",
];

/// Symbols, with what else is on their lines.
type List = BTreeMap<String, String>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    for file in [OVERRIDES, GATED, LAUNCHED, QUIET] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The library's own references to its functions must reach its own, also where a real driver was loaded first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Containers have older C libraries than the machines that this is built on.
    older_glibc::link();

    let lists = Lists {
        overrides: list(OVERRIDES)?,
        gated: list(GATED)?,
        launched: list(LAUNCHED)?,
        quiet: list(QUIET)?,
    };
    lists.check()?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("exports.rs"), exports(&lists)?)?;
    Ok(())
}

struct Lists {
    overrides: List,
    gated: List,
    launched: List,
    quiet: List,
}

impl Lists {
    fn check(&self) -> Result<(), Box<dyn Error>> {
        let all = [
            (OVERRIDES, &self.overrides),
            (GATED, &self.gated),
            (LAUNCHED, &self.launched),
            (QUIET, &self.quiet),
        ];
        let mut seen = BTreeMap::new();
        for (file, symbol) in
            all.iter().flat_map(|(file, list)| list.keys().map(move |symbol| (*file, symbol)))
        {
            // Others may answer what is quiet themselves.
            if let Some(other) = seen.insert(symbol, file)
                && (other, file) != (OVERRIDES, QUIET)
            {
                return Err(format!("{symbol} is in both {other} and {file}").into());
            }
        }
        let plain = |symbol: &&str| self.quiet.contains_key(*symbol) || self.overrides.contains_key(*symbol);
        match JUMPED.iter().find(|symbol| !plain(symbol)) {
            Some(symbol) => {
                Err(format!("{symbol} must be in {QUIET}: its arguments are not passed on otherwise").into())
            }
            None => Ok(()),
        }
    }
}

fn list(file: &str) -> Result<List, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(str::trim);
    let mut list = List::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (symbol, rest) = line.split_once(' ').unwrap_or((line, ""));
        let meant: BTreeSet<&str> = match symbol.strip_suffix('*') {
            Some(beginning) => {
                FUNCTIONS.iter().map(|f| f.symbol).filter(|symbol| symbol.starts_with(beginning)).collect()
            }
            None => table::index_of(symbol).map(|index| FUNCTIONS[index].symbol).into_iter().collect(),
        };
        if meant.is_empty() {
            return Err(format!("{file}: {symbol} is not a driver function; check the spelling").into());
        }
        for symbol in meant {
            if list.insert(symbol.to_owned(), rest.to_owned()).is_some() {
                return Err(format!("{file}: {symbol} is there twice").into());
            }
        }
    }
    Ok(list)
}

/// An export's index is its index in the table.
fn exports(lists: &Lists) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    writeln!(code, "pub(super) const COUNT: usize = {};", FUNCTIONS.len())?;
    for (index, function) in FUNCTIONS.iter().enumerate() {
        let symbol = function.symbol;
        if let Some(stream) = lists.gated.get(symbol) {
            writeln!(code, "crate::gated!({symbol}, {index}, {});", use_of(function, stream)?)?;
        } else if let Some(stream) = lists.launched.get(symbol) {
            writeln!(code, "crate::launched!({symbol}, {index}, {});", load(function, stream)?)?;
        } else if lists.overrides.contains_key(symbol) {
        } else if lists.quiet.contains_key(symbol) {
            writeln!(code, "forwarder!({symbol}, {index});")?;
        } else {
            writeln!(code, "crate::brief!({symbol}, {index});")?;
        }
    }
    writeln!(code, "unsafe extern \"C\" {{")?;
    for symbol in lists.overrides.keys() {
        writeln!(code, "    fn {symbol}();")?;
    }
    writeln!(code, "}}")?;
    writeln!(code, "pub(super) static EXPORTS: [Export; COUNT] = [")?;
    for Function { symbol, .. } in FUNCTIONS {
        let plain =
            [&lists.launched, &lists.overrides, &lists.quiet].iter().any(|list| list.contains_key(*symbol));
        // The others have arguments; the list keeps every address under one type.
        let address = match plain {
            true => (*symbol).to_owned(),
            false => {
                format!("unsafe {{ std::mem::transmute::<crate::gate::Widest, super::Address>({symbol}) }}")
            }
        };
        writeln!(code, "    Export {{ symbol: c\"{symbol}\", address: {address} }},")?;
    }
    writeln!(code, "];")?;
    writeln!(
        code,
        "/// The index of each symbol in the table.\n#[allow(non_upper_case_globals, dead_code)]"
    )?;
    writeln!(code, "pub(crate) mod index {{")?;
    for (index, Function { symbol, .. }) in FUNCTIONS.iter().enumerate() {
        writeln!(code, "    pub(crate) const {symbol}: usize = {index};")?;
    }
    writeln!(code, "}}")?;
    Ok(code)
}

fn is_per_thread(function: &Function) -> bool {
    function.stream == StreamVariant::PerThread
}

/// How a gated function uses the GPU, as a value of `demand::Use`.
fn use_of(function: &Function, stream: &str) -> Result<String, Box<dyn Error>> {
    let per_thread = is_per_thread(function);
    let use_ = match stream {
        "" => "UntilItReturns".to_owned(),
        "default" => format!("Default {{ per_thread: {per_thread} }}"),
        "default waits" => format!("DefaultAndWaits {{ per_thread: {per_thread} }}"),
        number => {
            let argument: usize = number.parse().map_err(|_| unknown(GATED, function, stream))?;
            format!("Stream {{ argument: {argument}, per_thread: {per_thread} }}")
        }
    };
    Ok(format!("crate::demand::Use::{use_}"))
}

/// The instructions that load the key of a launch's stream into r10.
fn load(function: &Function, stream: &str) -> Result<String, Box<dyn Error>> {
    const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
    let mut code: Vec<String> = match stream {
        "unknown" => return Ok("\"mov r10, -2\"".to_owned()),
        "default" => vec!["xor r10d, r10d".into()],
        // The driver answers for a structure that is not there.
        "config" => {
            vec![
                "xor r10d, r10d".into(),
                "test rdi, rdi".into(),
                "je 4f".into(),
                "mov r10, [rdi + 32]".into(),
                "4:".into(),
            ]
        }
        number => {
            let argument: usize = number.parse().map_err(|_| unknown(LAUNCHED, function, stream))?;
            let place = match REGISTERS.get(argument) {
                Some(register) => (*register).to_owned(),
                // Behind the return address.
                None => format!("[rsp + {}]", 8 * (argument - REGISTERS.len() + 1)),
            };
            vec![format!("mov r10, {place}")]
        }
    };
    // 0 becomes the name of the default stream that is meant: 1, or where the thread's control block is.
    match is_per_thread(function) {
        true => code.extend(["test r10, r10".into(), "cmove r10, fs:[0]".into()]),
        false => code.extend(["cmp r10, 1".into(), "adc r10, 0".into()]),
    }
    let quoted: Vec<String> = code.iter().map(|line| format!("\"{line}\"")).collect();
    Ok(quoted.join(", "))
}

fn unknown(file: &str, function: &Function, stream: &str) -> String {
    format!("{file}: {}: \"{stream}\" is no place for a stream", function.symbol)
}
