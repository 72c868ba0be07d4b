//! Recorded RM calls as text: one call a line, so that a trace from a real machine can be replayed and read.
//!
//! A line is `file request argument parameters`: the file's number in decimal, the rest in hexadecimal without
//! prefix; `-` stands for no bytes. Blank lines and lines that begin with `#` are skipped.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::os::fd::RawFd;

use crate::ioctl::{ARGUMENT_BYTES_MAX, Bytes, Call, PARAMETERS_BYTES_MAX};

/// Most calls in one trace.
pub const CALLS_MAX: usize = 4_000_000;
/// Most bytes in one line: the file, the request, argument and parameters, with room for blanks.
pub const LINE_BYTES_MAX: usize = 64 + 2 * (ARGUMENT_BYTES_MAX + PARAMETERS_BYTES_MAX);

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file itself could not be read.
    #[error("line {line} of the trace could not be read: {source}")]
    Read {
        /// Counted from 1.
        line: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A line does not have its four fields.
    #[error("line {line} of the trace has {found} fields, not the four `file request argument parameters`")]
    Fields {
        /// Counted from 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A field is not what it should be.
    #[error("line {line} of the trace: the {field} `{text}` is not {expected}")]
    Field {
        /// Counted from 1.
        line: usize,
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
    /// A line is longer than any that this module writes.
    #[error("line {line} of the trace is longer than {LINE_BYTES_MAX} bytes: this is not a trace")]
    LongLine {
        /// Counted from 1.
        line: usize,
    },
    /// More calls than a trace may have.
    #[error("the trace has more than {CALLS_MAX} calls: cut it, or record a shorter run")]
    TooMany,
}

/// One call as a line, with its line feed.
pub fn line(call: &Call) -> String {
    let mut text = String::with_capacity(LINE_BYTES_MAX);
    // Writing to a String cannot fail.
    let _ = write!(text, "{} {:x} ", call.file, call.request);
    push_hex(&mut text, &call.argument);
    text.push(' ');
    push_hex(&mut text, &call.parameters);
    text.push('\n');
    text
}

/// Writes one call, in one write, so that the lines of several threads on an appending file stay whole.
pub fn write(out: &mut impl io::Write, call: &Call) -> io::Result<()> {
    out.write_all(line(call).as_bytes())
}

/// Reads a whole trace.
pub fn read(mut source: impl BufRead) -> Result<Vec<Call>, TraceError> {
    let mut calls = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let bound = LINE_BYTES_MAX as u64 + 1;
        let read = io::Read::take(&mut source, bound).read_until(b'\n', &mut text);
        if read.map_err(|source| TraceError::Read { line, source })? == 0 {
            break;
        }
        if text.len() > LINE_BYTES_MAX {
            return Err(TraceError::LongLine { line });
        }
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if calls.len() == CALLS_MAX {
            return Err(TraceError::TooMany);
        }
        calls.push(parse(line, text)?);
    }
    Ok(calls)
}

fn parse(line: usize, text: &str) -> Result<Call, TraceError> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [file, request, argument, parameters] = fields[..] else {
        return Err(TraceError::Fields { line, found: fields.len() });
    };
    let wrong = |field, text: &str, expected| TraceError::Field { line, field, text: text.into(), expected };
    let file: RawFd = file.parse().map_err(|_| wrong("file", file, "a decimal file number"))?;
    let request = u32::from_str_radix(request, 16)
        .map_err(|_| wrong("request", request, "a hexadecimal number of 32 bits"))?;
    let argument = parse_hex(argument).ok_or_else(|| {
        wrong("argument", argument, "an even number of hexadecimal digits, 128 at most, or `-`")
    })?;
    let parameters = parse_hex(parameters).ok_or_else(|| {
        wrong("parameters", parameters, "an even number of hexadecimal digits, 128 at most, or `-`")
    })?;
    Ok(Call { file, request, argument, parameters })
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    if bytes.is_empty() {
        text.push('-');
    }
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

fn parse_hex<const MAX: usize>(text: &str) -> Option<Bytes<MAX>> {
    if text == "-" {
        return Some(Bytes::EMPTY);
    }
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > MAX {
        return None;
    }
    let mut bytes = [0; MAX];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(Bytes::first_of(&bytes[..digits.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(file: RawFd, request: u32, argument: &[u8], parameters: &[u8]) -> Call {
        Call { file, request, argument: Bytes::first_of(argument), parameters: Bytes::first_of(parameters) }
    }

    #[test]
    fn a_line_is_what_the_format_says() {
        let free = call(5, 0xc010_4629, &[1, 0, 0xab, 0xff], &[]);
        assert_eq!(line(&free), "5 c0104629 0100abff -\n");
        assert_eq!(line(&call(-1, 0, &[], &[0])), "-1 0 - 00\n");
    }

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        let calls = read("# a trace\n\n5 c0104629 00 -\n  # end".as_bytes()).unwrap();
        assert_eq!(calls, [call(5, 0xc010_4629, &[0], &[])]);
    }

    #[test]
    fn errors_name_the_line_and_the_value() {
        let message = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            message("# one\n5 c0104629 00\n"),
            "line 2 of the trace has 3 fields, not the four `file request argument parameters`"
        );
        assert_eq!(message("x 0 - -"), "line 1 of the trace: the file `x` is not a decimal file number");
        assert_eq!(
            message("1 xyz - -"),
            "line 1 of the trace: the request `xyz` is not a hexadecimal number of 32 bits"
        );
        assert!(message("1 0 - -\n1 0 abc -").starts_with("line 2 of the trace: the argument `abc`"));
        assert!(message("1 0 - 0g").starts_with("line 1 of the trace: the parameters `0g`"));
        assert!(
            message(&format!("1 0 {} -", "0".repeat(130))).starts_with("line 1 of the trace: the argument")
        );
        assert!(message(&"0".repeat(1000)).starts_with("line 1 of the trace is longer"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            calls in prop::collection::vec((
                any::<i32>(),
                any::<u32>(),
                prop::collection::vec(any::<u8>(), 0..=ARGUMENT_BYTES_MAX),
                prop::collection::vec(any::<u8>(), 0..=PARAMETERS_BYTES_MAX),
            ), 0..20)
        ) {
            let calls: Vec<Call> = calls.iter().map(|(f, r, a, p)| call(*f, *r, a, p)).collect();
            let mut text = Vec::new();
            for call in &calls {
                write(&mut text, call).unwrap();
            }
            prop_assert_eq!(read(&text[..]).unwrap(), calls);
        }

        #[test]
        fn garbage_never_panics(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = read(&text[..]);
        }
    }
}
