//! Judging what a daemon moved, by its timeline (`rotad --events`).
//!
//! The timeline has every turn and every move, but not what a tenant allocates. How much a tenant has is told whenever some
//! of it goes out; the least of what was told counts, all of it as one piece that may be kept in part, so the answer is a
//! bound. A tenant of which nothing ever went out counts for nothing, which is less than it is. Both make the least smaller
//! and the ratio larger, never the other way round. Whoever is there when the time begins is taken to have it all by then: let
//! that be after they have allocated it. Whoever comes later counts from the first time that some of it went out.

use super::{Began, Case, Judged, OptimumError, PieceId, least};
use sched::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// Lines of one timeline.
pub const LINES_MAX: usize = 10_000_000;

/// Why a timeline cannot be judged.
#[derive(Debug, Error)]
pub enum EventsError {
    /// A line that is no event.
    #[error("line {line} is no event of a daemon: {cause}\nhint: give what `rotad --events FILE` wrote")]
    Wrong {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
    /// Too long.
    #[error("there are more than {LINES_MAX} lines")]
    TooLong,
    /// Moves do not say on which GPU they are.
    #[error(
        "tenants are on GPUs {first} and {second}, and moves do not say where they are\nhint: share one GPU only"
    )]
    SeveralGpus {
        /// One of them.
        first: u16,
        /// Another.
        second: u16,
    },
    /// More was on the device than there is room for.
    #[error(
        "tenants had {seen} on the device at once, more than the room of {room}\nhint: the room is what is left of the \
         capacity when the mover and all contexts have theirs"
    )]
    RoomTooSmall {
        /// What was seen.
        seen: Bytes,
        /// What was given.
        room: Bytes,
    },
    /// Nothing to judge.
    #[error("nobody had a turn in that time")]
    NoTurns,
    /// There is no optimum.
    #[error(transparent)]
    Optimum(#[from] OptimumError),
}

/// The time that is judged, both ends included, in the daemon's nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From.
    pub from_ns: u64,
    /// To.
    pub to_ns: u64,
}

impl Window {
    /// All of it.
    pub const ALL: Self = Self { from_ns: 0, to_ns: u64::MAX };
}

/// What a line has of what is looked at here.
#[derive(Debug, Deserialize)]
struct Line {
    t_ns: u64,
    event: String,
    tenant: Option<u64>,
    gpu: Option<u16>,
    bytes_out: Option<u64>,
    bytes_in: Option<u64>,
    failed: Option<u64>,
    away_bytes: Option<u64>,
    resident_bytes: Option<u64>,
    #[serde(default)]
    out: Vec<Part>,
    #[serde(default)]
    into: Vec<Part>,
}

/// What a move has of one tenant.
#[derive(Debug, Deserialize)]
struct Part {
    tenant: u64,
    bytes: u64,
}

/// Judges what was moved in a time, with so many bytes of room on the device for what tenants allocate.
pub fn judge(text: &str, room: u64, window: Window) -> Result<Judged, EventsError> {
    let lines = read(text)?;
    one_gpu(&lines)?;
    let mut reader = Reader::new(&lines, Bytes(room), window);
    for line in &lines {
        if line.t_ns > window.to_ns {
            break;
        }
        reader.take(line)?;
    }
    reader.judged()
}

fn read(text: &str) -> Result<Vec<Line>, EventsError> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if number >= LINES_MAX {
            return Err(EventsError::TooLong);
        }
        let line =
            serde_json::from_str(line).map_err(|cause| EventsError::Wrong { line: number + 1, cause })?;
        lines.push(line);
    }
    // Several threads write, so neighbours may have changed places.
    lines.sort_by_key(|line: &Line| line.t_ns);
    Ok(lines)
}

fn one_gpu(lines: &[Line]) -> Result<(), EventsError> {
    let mut gpus = lines.iter().filter(|line| line.event == "joined").filter_map(|line| line.gpu);
    let Some(first) = gpus.next() else { return Ok(()) };
    match gpus.find(|&other| other != first) {
        Some(second) => Err(EventsError::SeveralGpus { first, second }),
        None => Ok(()),
    }
}

/// A tenant, as far as the timeline tells.
#[derive(Debug, Default)]
struct Tenant {
    /// The least it was seen to have.
    bytes: u64,
    /// And that within the time that is judged.
    told_inside: bool,
    away: u64,
    present: bool,
    /// Once it counts: what was on the device when it began to, and what was away.
    pieces: Vec<PieceId>,
}

struct Reader {
    room: Bytes,
    window: Window,
    tenants: BTreeMap<u64, Tenant>,
    /// The move under way: more away, and less, of each.
    moving: Vec<(u64, i128)>,
    inside: bool,
    /// Whose turn it is.
    owner: Option<u64>,
    case: Case,
    turns: usize,
    moved: u64,
}

impl Reader {
    fn new(lines: &[Line], room: Bytes, window: Window) -> Self {
        let mut tenants: BTreeMap<u64, Tenant> = BTreeMap::new();
        for line in lines.iter().take_while(|line| line.t_ns <= window.to_ns) {
            if let (Some(tenant), Some(away), Some(resident)) =
                (line.tenant, line.away_bytes, line.resident_bytes)
            {
                let bytes = away.saturating_add(resident);
                let it = tenants.entry(tenant).or_default();
                // Before the time that is judged, the last word counts.
                let least = if it.told_inside { it.bytes.min(bytes) } else { bytes };
                (it.bytes, it.told_inside) = (least, line.t_ns >= window.from_ns);
            }
        }
        let case = Case::in_parts();
        Self {
            room,
            window,
            tenants,
            moving: Vec::new(),
            inside: false,
            owner: None,
            case,
            turns: 0,
            moved: 0,
        }
    }

    fn take(&mut self, line: &Line) -> Result<(), EventsError> {
        if !self.inside && line.t_ns >= self.window.from_ns {
            self.inside = true;
            self.begin()?;
        }
        match (line.event.as_str(), line.tenant) {
            ("joined", Some(tenant)) => self.tenants.entry(tenant).or_default().present = true,
            ("left", Some(tenant)) => self.left(tenant),
            ("thaw", Some(tenant)) => self.needs(tenant)?,
            ("turn_begin", Some(tenant)) => {
                self.owner = Some(tenant);
                self.needs(tenant)?;
            }
            ("turn_end", Some(tenant)) if self.owner == Some(tenant) => self.owner = None,
            ("move_begin", _) => {
                let out = line.out.iter().map(|part| (part.tenant, i128::from(part.bytes)));
                let into = line.into.iter().map(|part| (part.tenant, -i128::from(part.bytes)));
                self.moving = out.chain(into).collect();
            }
            ("move_end", _) => self.move_ends(line),
            ("away", Some(tenant)) => {
                self.is_away(tenant, line.away_bytes.unwrap_or(0));
                // Of whoever came since the beginning, this is the first that is known.
                let it = &self.tenants[&tenant];
                if self.inside && it.present && it.pieces.is_empty() {
                    self.count(tenant)?;
                }
            }
            ("resident", Some(tenant)) => self.is_away(tenant, 0),
            _ => {}
        }
        if line.event == "turn_begin" && self.inside {
            self.room_is_enough()?;
        }
        Ok(())
    }

    /// Those who are there when the time begins.
    fn begin(&mut self) -> Result<(), EventsError> {
        let here: Vec<u64> = self.tenants.iter().filter(|(_, it)| it.present).map(|(&id, _)| id).collect();
        here.into_iter().try_for_each(|tenant| self.count(tenant))
    }

    /// What a tenant has counts from now on, where it is.
    fn count(&mut self, tenant: u64) -> Result<(), EventsError> {
        let it = self.tenants.entry(tenant).or_default();
        let away = it.away.min(it.bytes);
        for (bytes, began) in [(it.bytes - away, Began::Resident), (away, Began::Away)] {
            if bytes > 0 {
                it.pieces.push(self.case.piece(Bytes(bytes), true, began)?);
            }
        }
        Ok(())
    }

    fn left(&mut self, tenant: u64) {
        let it = self.tenants.entry(tenant).or_default();
        (it.present, it.away) = (false, 0);
        self.owner = self.owner.filter(|&owner| owner != tenant);
        it.pieces.drain(..).for_each(|piece| self.case.free_piece(piece));
    }

    /// A tenant may run: all that it has is there, and what whoever has the turn has.
    fn needs(&mut self, tenant: u64) -> Result<(), EventsError> {
        if !self.inside {
            return Ok(());
        }
        self.turns += 1;
        let running = self.owner.into_iter().chain([tenant]).filter_map(|who| self.tenants.get(&who));
        Ok(self.case.step(self.room, running.flat_map(|it| it.pieces.iter().copied()))?)
    }

    fn move_ends(&mut self, line: &Line) {
        if self.inside {
            self.moved += line.bytes_out.unwrap_or(0) + line.bytes_in.unwrap_or(0);
        }
        // What of a move that failed in part is where, is told apart.
        let moving = std::mem::take(&mut self.moving);
        for (tenant, more) in moving.into_iter().filter(|_| line.failed == Some(0)) {
            let it = self.tenants.entry(tenant).or_default();
            it.away = u64::try_from(i128::from(it.away) + more).unwrap_or(0);
        }
    }

    fn is_away(&mut self, tenant: u64, bytes: u64) {
        self.tenants.entry(tenant).or_default().away = bytes;
    }

    fn room_is_enough(&self) -> Result<(), EventsError> {
        let here = self.tenants.values().filter(|it| !it.pieces.is_empty());
        let seen = Bytes(here.map(|it| it.bytes.saturating_sub(it.away)).sum());
        if seen > self.room {
            return Err(EventsError::RoomTooSmall { seen, room: self.room });
        }
        Ok(())
    }

    fn judged(self) -> Result<Judged, EventsError> {
        if self.turns == 0 {
            return Err(EventsError::NoTurns);
        }
        Ok(Judged { moved: Bytes(self.moved), least: least(&self.case)?, steps: self.turns })
    }
}
