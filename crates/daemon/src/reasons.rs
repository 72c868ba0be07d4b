//! Why memory is short, in words for people.

use sched::{Bytes, Short, Span};
use std::time::Duration;
use wire::quantity::Roughly;

/// Why a request is denied, or a newcomer refused or kept waiting.
pub fn words(why: Short) -> String {
    match why {
        Short::Malformed => "a request of a size or a number that cannot be, or too many at once".into(),
        Short::Unknown => "the program is not known to the daemon".into(),
        Short::Limit { wanted, limit } => {
            let [wanted, limit] = told_apart(wanted, limit);
            format!("{wanted} in all would be more than the {limit} that its job may have")
        }
        Short::Device { wanted, usable } => {
            let [wanted, usable] = told_apart(wanted, usable);
            format!("{wanted} in all would not fit on the GPU, of which {usable} are usable for it")
        }
        Short::Host { wanted, limit } => {
            let [wanted, limit] = told_apart(wanted, limit);
            format!(
                "{wanted} would lie in the host's memory, of which there are {limit} for what GPUs cannot have"
            )
        }
        Short::Together { wanted, limit } => {
            let [wanted, limit] = told_apart(wanted, limit);
            format!(
                "all programs together would have {wanted}, too much to take turns with {limit} of GPU and arena"
            )
        }
        Short::Context => {
            "one more context would leave too little of the GPU to somebody who is there".into()
        }
        Short::Tenants => "as many programs as may come (tenants_max) are there already".into(),
        Short::Pressure => "the arena is nearly full".into(),
        Short::Standstill => {
            "every program that has memory on this GPU waits for more, so none of them would ever free any"
                .into()
        }
    }
}

/// Two amounts in a unit in which they differ, if they do.
fn told_apart(one: Bytes, other: Bytes) -> [String; 2] {
    let in_gib = [one, other].map(|bytes| bytes.to_string());
    if one.min(other) >= Bytes::from_gib(1) && in_gib[0] != in_gib[1] {
        return in_gib;
    }
    [one, other].map(|bytes| format!("{} MiB", bytes.0 >> 20))
}

/// What someone at the door is told.
pub fn at_the_door(why: Short, place: u32, forecast: Option<Span>) -> String {
    let when = match forecast {
        Some(span) => format!(", in {}", Roughly(Duration::from_nanos(span.0))),
        None => String::new(),
    };
    format!("{}; number {place} in the queue{when}", words(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_amounts() {
        let why = Short::Device { wanted: Bytes::from_gib(20), usable: Bytes::from_gib(16) };
        assert_eq!(
            words(why),
            "20.00 GiB in all would not fit on the GPU, of which 16.00 GiB are usable for it"
        );
        let mib = |mib: u64| Bytes(mib << 20);
        assert_eq!(told_apart(mib(196), mib(192)), ["196 MiB", "192 MiB"]);
        assert_eq!(told_apart(mib(20_482), mib(20_480)), ["20482 MiB", "20480 MiB"]);
    }

    #[test]
    fn whoever_waits_learns_its_place_and_how_long() {
        let told = at_the_door(Short::Context, 2, Some(Span::from_secs(12)));
        assert!(told.contains("number 2") && told.ends_with("in about 12 s"), "{told}");
        assert!(at_the_door(Short::Tenants, 1, None).ends_with("number 1 in the queue"));
    }
}
