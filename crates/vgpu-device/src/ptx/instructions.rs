//! Whether the code of a kernel is made of instructions that exist.

use super::PtxError;

/// Instructions, without what follows their first point.
const INSTRUCTIONS: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "alloca",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clz",
    "clusterlaunchcontrol",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "istypep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "multimem",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sub",
    "subc",
    "suld",
    "suq",
    "sured",
    "sust",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "tex",
    "tld4",
    "trap",
    "txq",
    "vabsdiff",
    "vadd",
    "vmad",
    "vmax",
    "vmin",
    "vote",
    "vset",
    "vshl",
    "vshr",
    "vsub",
    "wgmma",
    "wmma",
    "xor",
];

/// Every statement of a body begins with an instruction, a directive or a label: code that is none shows.
pub(super) fn check_instructions(text: &str) -> Result<(), PtxError> {
    let mut depth = 0_u32;
    let mut statement = String::new();
    for c in text.chars() {
        match c {
            '{' => {
                depth += 1;
                statement.clear();
            }
            '}' => {
                depth = depth.saturating_sub(1);
                statement.clear();
            }
            // A label.
            ':' if depth > 0 && !statement.trim().contains(' ') => statement.clear(),
            ';' if depth > 0 => {
                check_instruction(statement.trim())?;
                statement.clear();
            }
            _ => statement.push(c),
        }
    }
    Ok(())
}

fn check_instruction(statement: &str) -> Result<(), PtxError> {
    let mut words = statement.split_whitespace();
    let mut word = words.next().unwrap_or_default();
    if word.starts_with('@') {
        word = words.next().unwrap_or_default();
    }
    let name = word.split('.').next().unwrap_or_default();
    // What begins with a point is a directive; what begins with a bracket is the rest of a call or a list.
    let known =
        word.starts_with('.') || name.is_empty() || !name.starts_with(|c: char| c.is_ascii_alphabetic());
    if known || INSTRUCTIONS.contains(&name) {
        return Ok(());
    }
    Err(PtxError::Malformed(format!("there is no instruction {word}")))
}
