//! Starts processes that run the checks, and prints one line for each check.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;

use super::{FAMILIES, Family, Setting};

/// How long one check may take.
const CHECK_TIME_MAX: Duration = Duration::from_secs(30);

/// How the suite went.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Score {
    /// Checks whose outcome was the expected one.
    pub passed: usize,
    /// All others.
    pub failed: usize,
}

/// Checks of one family that share a process.
#[derive(Clone, Copy)]
struct Part {
    family: &'static Family,
    first: usize,
    last: usize,
}

/// What checks recorded, by the place of their family and their own.
type Outcomes = HashMap<(&'static str, usize), String>;

/// Runs every check whose `family/name` contains `filter` and prints a line for each, in a fixed order. Checks that have a
/// process for themselves run first, `jobs` at a time.
pub fn run(filter: &str, jobs: usize) -> anyhow::Result<Score> {
    let parts: Vec<Part> = FAMILIES.iter().flat_map(|family| parts(family, filter)).collect();
    let (alone, shared): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|part| part.family.checks[part.first].setting != Setting::Shared);
    let mut outcomes = run_together(&alone, jobs)?;
    let mut score = Score::default();
    for family in FAMILIES {
        for part in shared.iter().filter(|part| std::ptr::eq(part.family, family)) {
            outcomes.extend(run_part(*part)?);
        }
        for (index, check) in family.checks.iter().enumerate() {
            let Some(words) = outcomes.get(&(family.name, index)) else { continue };
            if words == check.expected {
                score.passed += 1;
                println!("PASS {}/{}: {words}", family.name, check.name);
            } else {
                score.failed += 1;
                println!("FAIL {}/{}: {words} (expected: {})", family.name, check.name, check.expected);
            }
        }
    }
    Ok(score)
}

/// The processes that a family's chosen checks need.
fn parts(family: &'static Family, filter: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, check) in family.checks.iter().enumerate() {
        if !format!("{}/{}", family.name, check.name).contains(filter) {
            continue;
        }
        let shared = check.setting == Setting::Shared;
        match parts.last_mut() {
            Some(part)
                if shared && part.last == index && family.checks[part.first].setting == Setting::Shared =>
            {
                part.last += 1;
            }
            _ => parts.push(Part { family, first: index, last: index + 1 }),
        }
    }
    parts
}

/// Runs parts, so many at a time.
fn run_together(parts: &[Part], jobs: usize) -> anyhow::Result<Outcomes> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Ok(Outcomes::new())));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = run_part(*part);
                    let mut all = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match (&mut *all, done) {
                        (Ok(all), Ok(done)) => all.extend(done),
                        (Ok(_), Err(error)) => *all = Err(error),
                        (Err(_), _) => {}
                    }
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs a part to its end, in a new process after each check that ended its process.
fn run_part(part: Part) -> anyhow::Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    let mut first = part.first;
    while first < part.last {
        first = run_process(Part { first, ..part }, &mut outcomes)?;
    }
    Ok(outcomes)
}

/// Runs a part in one process. Returns the first check that was not begun.
fn run_process(part: Part, outcomes: &mut Outcomes) -> anyhow::Result<usize> {
    let Part { family, first, last } = part;
    let own = std::env::current_exe().context("the path of this program is not known")?;
    let mut child = Command::new(own)
        .args(["part", family.name, &first.to_string(), &last.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("a process for the checks does not start")?;
    let lines = lines_of(&mut child);
    let mut at = first;
    let mut done = |index: usize, words: &str| outcomes.insert((family.name, index), words.to_owned());
    while at < last {
        match lines.recv_timeout(CHECK_TIME_MAX) {
            Ok(line) => {
                if let Some(words) = line.strip_prefix(&format!("end {at}")) {
                    done(at, words.trim());
                    at += 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                done(at, "did not end");
                child.kill().context("the process for the checks cannot be killed")?;
                child.wait().context("the process for the checks cannot be waited for")?;
                return Ok(at + 1);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().context("the process for the checks cannot be waited for")?;
                let how = match (status.signal(), status.code()) {
                    (Some(signal), _) => format!("died of signal {signal}"),
                    (None, code) => format!("ended with status {}", code.unwrap_or(-1)),
                };
                done(at, &how);
                return Ok(at + 1);
            }
        }
    }
    // It may hang in a driver that is tearing down a broken context; nothing is expected of it any more.
    if lines.recv_timeout(CHECK_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
        child.kill().context("the process for the checks cannot be killed")?;
    }
    child.wait().context("the process for the checks cannot be waited for")?;
    Ok(at)
}

/// The lines a process prints, until it closes its output.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_in_one_part_and_lonely_ones_are_alone() {
        for family in FAMILIES {
            let parts = parts(family, "");
            let covered: Vec<usize> = parts.iter().flat_map(|part| part.first..part.last).collect();
            assert_eq!(covered, (0..family.checks.len()).collect::<Vec<_>>(), "{}", family.name);
            for part in parts {
                let checks = &family.checks[part.first..part.last];
                let shared = checks.iter().all(|check| check.setting == Setting::Shared);
                assert!(shared || checks.len() == 1, "{} {}", family.name, checks[0].name);
            }
        }
    }

    #[test]
    fn a_filter_chooses_by_family_and_name() {
        let chosen = |filter: &str| -> usize {
            let parts = FAMILIES.iter().flat_map(|family| parts(family, filter));
            parts.map(|part| part.last - part.first).sum()
        };
        assert_eq!(chosen("init/twice"), 1);
        assert_eq!(chosen("no such check"), 0);
        assert!(chosen("init/") > 1);
    }
}
