//! Every function that NVML exports: 404 of driver 580.159.04. What an older driver does not have is not found there, and
//! what a newer one adds is not forwarded.

/// The symbols, in the order of the alphabet.
pub const SYMBOLS: &str = include_str!("../symbols.txt");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_symbol_is_there_once() {
        let all: BTreeSet<&str> = SYMBOLS.lines().collect();
        assert_eq!(all.len(), SYMBOLS.lines().count());
        assert_eq!(all.len(), 404);
        assert!(all.iter().all(|symbol| symbol.starts_with("nvml")));
    }
}
