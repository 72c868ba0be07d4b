//! Judging what a daemon moved, by its timeline (`rotad --events`).
//!
//! The timeline has every turn and every move, but not what a tenant allocates. How much a tenant has is told whenever some
//! of it goes out; what is known by then counts from then on, in any parts, as handles are not told either. So the answer is
//! a bound, and all that is not known makes it smaller and the ratio larger. This is for programs that keep what they have:
//! of those that free and allocate all the time, the timeline tells too little. Let the time that is judged begin when all
//! have been moved once.

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
         capacity when the mover and all contexts have theirs; of programs that free and allocate all the time, a \
         timeline tells too little"
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
    let mut reader = Reader::new(Bytes(room), window);
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
    /// What it had when that was told last.
    bytes: u64,
    away: u64,
    /// What counts of it, with its bytes.
    pieces: Vec<(PieceId, u64)>,
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
    fn new(room: Bytes, window: Window) -> Self {
        Self {
            room,
            window,
            tenants: BTreeMap::new(),
            moving: Vec::new(),
            inside: false,
            owner: None,
            case: Case::in_parts(),
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
                let away = line.away_bytes.unwrap_or(0);
                let it = self.tenants.entry(tenant).or_default();
                (it.bytes, it.away) = (away.saturating_add(line.resident_bytes.unwrap_or(0)), away);
                if self.inside {
                    self.count(tenant)?;
                }
            }
            ("resident", Some(tenant)) => self.tenants.entry(tenant).or_default().away = 0,
            _ => {}
        }
        if line.event == "turn_begin" && self.inside {
            self.room_is_enough()?;
        }
        Ok(())
    }

    /// What is known of each when the time begins.
    fn begin(&mut self) -> Result<(), EventsError> {
        let known: Vec<u64> = self.tenants.keys().copied().collect();
        known.into_iter().try_for_each(|tenant| self.count(tenant))
    }

    /// It is known how much a tenant has, and where. Where that is more than counts already, nobody knows which of it.
    fn count(&mut self, tenant: u64) -> Result<(), EventsError> {
        let it = self.tenants.entry(tenant).or_default();
        let mut counted: u64 = it.pieces.iter().map(|(_, bytes)| bytes).sum();
        while counted > it.bytes
            && let Some((piece, bytes)) = it.pieces.pop()
        {
            self.case.free_piece(piece);
            counted -= bytes;
        }
        let (more, away) = (it.bytes - counted, it.away.min(it.bytes));
        let parts = match counted {
            0 => [(more - away, Began::Resident), (away, Began::Away)],
            _ => [(more, Began::New), (0, Began::Away)],
        };
        for (bytes, began) in parts.into_iter().filter(|&(bytes, _)| bytes > 0) {
            it.pieces.push((self.case.piece(Bytes(bytes), true, began)?, bytes));
        }
        Ok(())
    }

    fn left(&mut self, tenant: u64) {
        self.owner = self.owner.filter(|&owner| owner != tenant);
        let it = self.tenants.remove(&tenant).unwrap_or_default();
        it.pieces.into_iter().for_each(|(piece, _)| self.case.free_piece(piece));
    }

    /// A tenant may run: all that it has is there, and what whoever has the turn has.
    fn needs(&mut self, tenant: u64) -> Result<(), EventsError> {
        if !self.inside {
            return Ok(());
        }
        self.turns += 1;
        let running = self.owner.into_iter().chain([tenant]).filter_map(|who| self.tenants.get(&who));
        Ok(self.case.step(self.room, running.flat_map(|it| it.pieces.iter().map(|&(piece, _)| piece)))?)
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

    fn room_is_enough(&self) -> Result<(), EventsError> {
        let seen = Bytes(self.tenants.values().map(|it| it.bytes.saturating_sub(it.away)).sum());
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
