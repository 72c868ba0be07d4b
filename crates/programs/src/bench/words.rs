//! How results are written: short, the same on every driver, without addresses or times.

use std::ffi::c_void;
use std::fmt::Write;

use cuda::CUresult;

/// A result code: `ok`, or the driver's name for it without its beginning.
pub(crate) fn code(code: CUresult) -> String {
    match code.name() {
        Some("CUDA_SUCCESS") => "ok".to_owned(),
        Some(name) => name.strip_prefix("CUDA_ERROR_").unwrap_or(name).to_owned(),
        None => format!("code-{}", code.0),
    }
}

/// The most bytes that are written out.
const SHORT_MAX: usize = 16;

/// Bytes: as hexadecimal digits if they are few, by number and hash otherwise.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    if bytes.len() > SHORT_MAX {
        return format!("{}:{:016x}", bytes.len(), hash(HASH_BEGIN, bytes));
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Writing to a string cannot fail.
        text
    })
}

/// What a hash of nothing is.
pub(crate) const HASH_BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// Takes bytes into a hash (FNV-1a of 64 bits).
pub(crate) fn hash(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// What memory holds that the device may have written behind the compiler's back.
pub(crate) fn fresh(bytes: &mut [u8]) -> Vec<u8> {
    std::hint::black_box(bytes).to_vec()
}

/// So many bytes of no pattern.
pub(crate) fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let words = (0..count.div_ceil(8) as u64).map(|index| crate::kernels::rewritten(0, seed, 0, index));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(count);
    bytes
}

/// The pointers to parameters that a launch takes.
pub(crate) fn pointers(parameters: &[u64]) -> Vec<*mut c_void> {
    parameters.iter().map(|parameter| std::ptr::from_ref(parameter).cast_mut().cast()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_short() {
        assert_eq!(code(CUresult::SUCCESS), "ok");
        assert_eq!(code(CUresult::ILLEGAL_ADDRESS), "ILLEGAL_ADDRESS");
        assert_eq!(code(CUresult(4242)), "code-4242");
    }

    #[test]
    fn bytes_are_digits_or_a_hash() {
        assert_eq!(bytes(&[0, 255]), "00ff");
        // A known value: FNV-1a of seventeen times `a`.
        assert_eq!(bytes(&[b'a'; 17]), format!("17:{:016x}", hash(HASH_BEGIN, &[b'a'; 17])));
        assert_eq!(hash(HASH_BEGIN, b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn patterns_have_their_length() {
        assert_eq!(pattern(1, 13).len(), 13);
        assert_eq!(pattern(1, 13), pattern(1, 20)[..13]);
        assert_ne!(pattern(1, 13), pattern(2, 13));
    }
}
