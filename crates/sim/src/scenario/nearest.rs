//! "Did you mean": which of the known words is nearest to one that is not known.

/// More letters wrong than this is another word.
const WRONG_MAX: usize = 3;

/// The known word that a mistyped one is probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of a word may be wrong: with more, any short word is like any other.
    let bound = WRONG_MAX.min(word.chars().count().div_ceil(3));
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(wrong, candidate)| {
            *wrong <= bound
                || (word.len() >= 3 && (candidate.starts_with(word) || word.starts_with(candidate)))
        })
        .min_by_key(|(wrong, _)| *wrong)
        .map(|(_, candidate)| candidate)
}

/// Letters to put in, take out or change, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(!a.eq_ignore_ascii_case(b));
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("tenant", "tenants"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("Same", "same"), 0);
    }

    #[test]
    fn only_near_words_are_meant() {
        let known = ["turn_min", "turn_max", "gap_max", "policy"];
        assert_eq!(nearest("turn_mn", known), Some("turn_min"));
        assert_eq!(nearest("gapmax", known), Some("gap_max"));
        assert_eq!(nearest("turn", known), Some("turn_min"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("foo", ["job"]), None);
        assert_eq!(nearest("jbo", ["job"]), None);
        assert_eq!(nearest("jo", ["job"]), Some("job"));
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("anything", []), None);
    }
}
