//! Pictures are well-formed, bounded and say what they show.

use super::*;
use crate::record::{Stretch, What};
use sched::{TenantId, Time};

fn record(tenants: u64, turns: u64) -> Record {
    let mut record = Record { makespan: Span::from_secs(100), ..Record::default() };
    for tenant in 0..tenants {
        record.tenants.push(Fate {
            tenant: TenantId(tenant),
            job: 0,
            name: format!("a<b>&\"c\"-with-a-very-long-name-{tenant}"),
            arrived: Time::ZERO,
            ended: Some(Time(Span::from_secs(100).0)),
            work: Span::from_secs(1),
            gap_max: Span::ZERO,
            wait_max: Span::ZERO,
            best_effort: true,
            wanted: Span::ZERO,
            ran: Span::ZERO,
            ran_beside: Span::ZERO,
            late: 0,
        });
        let length = Span::from_secs(100).0 / turns;
        for turn in 0..turns {
            let what = [What::Ran, What::Waited, What::MovedIn, What::MovedOut, What::Idle]
                [((turn * 7 + tenant * 3 + turn * turn) % 5) as usize];
            let (begin, end) = (Time(turn * length), Time((turn + 1) * length));
            record.stretches.push(Stretch {
                tenant: TenantId(tenant),
                gpu: (tenant % 2) as u16,
                what,
                begin,
                end,
            });
        }
    }
    record
}

fn picture(record: &Record) -> String {
    let panels = [Panel { title: "rota".into(), record }];
    svg("demo & <more>", "what it \"is\"", &panels, record.makespan)
}

/// Every tag that is opened is closed, in order, and no text holds what would open one.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
    for ampersand in svg.split('&').skip(1) {
        assert!(
            ["lt;", "gt;", "amp;", "quot;"].iter().any(|name| ampersand.starts_with(name)),
            "{ampersand:.20}"
        );
    }
}

#[test]
fn a_picture_is_well_formed_and_explains_itself() {
    let svg = picture(&record(4, 20));
    assert_well_formed(&svg);
    for word in ["demo &amp; &lt;more&gt;", "memory moves in", "waited", "idle", "ended", "10 s", "@1"] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn the_busiest_picture_stays_small() {
    for (tenants, turns) in [(1, 100_000), (4, 30_000), (64, 3_000), (500, 300)] {
        let svg = picture(&record(tenants, turns));
        assert!(svg.len() < BYTES_MAX, "{tenants} tenants, {turns} turns: {} bytes", svg.len());
        assert_well_formed(&svg);
    }
    assert!(picture(&record(500, 3)).contains("and 404 more"));
}

#[test]
fn a_picture_of_nothing_is_one() {
    assert_well_formed(&svg("t", "a", &[], Span::ZERO));
    assert_well_formed(&picture(&Record::default()));
}

#[test]
fn what_does_not_fit_is_said() {
    let record = record(1, 10);
    let svg = svg("t", "a", &[Panel { title: "p".into(), record: &record }], Span::from_secs(50));
    assert!(svg.contains("goes on until 100.00 s"));
}

#[test]
fn ticks_are_round_and_few() {
    for until in [900, 50_000, 87_000_000, 5_000_000_000, 667_000_000_000, 100_000_000_000_000] {
        let (step, unit, _) = ticks(Span(until));
        assert!((3..=12).contains(&(until / step)), "{until}: {step}");
        assert_eq!(step % unit, 0);
    }
}
