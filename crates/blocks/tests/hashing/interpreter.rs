//! Runs PTX on the host, as far as `hash_blocks.ptx` and `copy_words.ptx` use it.
//!
//! The 32 lanes of a warp do each instruction together, and branch together. Warps run one after the other, each up to the
//! next barrier, so that a barrier that is missing shows; and copies into shared memory are done at the first or the
//! last moment that is allowed ([`Copies`]), so that a wait that is missing shows. Addresses are checked, and registers
//! begin as rubbish. What the kernels do not use panics.

use std::collections::HashMap;

const LANES: usize = 32;
const RUBBISH: u64 = 0xdead_beef_dead_beef;
/// The most instructions that a warp may do: a loop that does not end shows.
const STEPS_MAX: usize = 1_000_000;

/// A value in each lane.
type Lanes = [u64; LANES];

/// When a `cp.async` is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// When it is issued.
    Early,
    /// When somebody waits for it.
    Late,
}

#[derive(Debug)]
enum Operand {
    Register(usize),
    Vector(Vec<usize>),
    Number(u64),
    Memory { base: usize, offset: u64 },
    Name(String),
}

#[derive(Debug)]
struct Instruction {
    guard: Option<usize>,
    code: String,
    operands: Vec<Operand>,
}

/// A kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    parameters: Vec<String>,
    instructions: Vec<Instruction>,
    labels: HashMap<String, usize>,
    registers: HashMap<String, usize>,
    shared_bytes: usize,
}

impl Kernel {
    /// Reads a module with one entry.
    pub(crate) fn parse(text: &str) -> Kernel {
        let text: String = text.lines().map(|line| line.split("//").next().unwrap()).collect();
        let (_, entry) = text.split_once(".entry").expect("an entry");
        let (head, body) = entry.split_once('{').expect("a body");
        let mut kernel = Kernel::default();
        let parameters = head.split(".param .u64").skip(1);
        kernel.parameters = parameters.map(|it| it.split([',', ')']).next().unwrap().trim().into()).collect();
        for statement in body.rsplit_once('}').expect("an end").0.split(';') {
            let mut statement = statement.trim();
            while let Some((label, rest)) = statement.split_once(':').filter(|it| !it.0.contains(['.', ' ']))
            {
                kernel.labels.insert(label.into(), kernel.instructions.len());
                statement = rest.trim();
            }
            if let Some(shared) = statement.strip_prefix(".shared") {
                let bytes = shared.split(['[', ']']).nth(1).expect("a size");
                kernel.shared_bytes = bytes.parse().unwrap();
            } else if !statement.is_empty() && !statement.starts_with('.') {
                let instruction = kernel.instruction(statement);
                kernel.instructions.push(instruction);
            }
        }
        kernel
    }

    fn instruction(&mut self, text: &str) -> Instruction {
        let (guard, text) = match text.strip_prefix('@').and_then(|text| text.split_once(' ')) {
            Some((guard, rest)) => (Some(self.register(guard)), rest.trim()),
            None => (None, text),
        };
        let (code, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let mut operands: Vec<String> = Vec::new();
        for piece in rest.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            // A comma inside of braces belongs to the vector.
            match operands.last_mut().filter(|last| last.starts_with('{') && !last.ends_with('}')) {
                Some(vector) => *vector = format!("{vector},{piece}"),
                None => operands.push(piece.into()),
            }
        }
        let operands = operands.iter().map(|text| self.operand(text)).collect();
        Instruction { guard, code: code.into(), operands }
    }

    fn operand(&mut self, text: &str) -> Operand {
        if let Some(inside) = text.strip_prefix('{') {
            return Operand::Vector(
                inside.trim_end_matches('}').split(',').map(|it| self.register(it.trim())).collect(),
            );
        }
        if let Some(inside) = text.strip_prefix('[').filter(|inside| inside.starts_with('%')) {
            let inside = inside.trim_end_matches(']');
            let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
            return Operand::Memory {
                base: self.register(base.trim()),
                offset: number(offset.trim()).unwrap(),
            };
        }
        match number(text) {
            Some(value) => Operand::Number(value),
            None if text.starts_with('%') && !text.contains('.') => Operand::Register(self.register(text)),
            None => Operand::Name(text.trim_matches(['[', ']']).into()),
        }
    }

    fn register(&mut self, name: &str) -> usize {
        let next = self.registers.len();
        *self.registers.entry(name.into()).or_insert(next)
    }

    /// Runs all of a grid, one block of threads after the other.
    pub(crate) fn launch(
        &self,
        grid: u32,
        threads: u32,
        parameters: &[u64],
        memory: &mut Memory,
        copies: Copies,
    ) {
        assert_eq!(parameters.len(), self.parameters.len());
        for cta in 0..grid {
            let warps = (0..threads as usize / LANES).map(|warp| Warp::new(self, warp, cta)).collect();
            Cta { kernel: self, parameters, memory, shared: vec![0xaa; self.shared_bytes], copies, warps }
                .run();
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Device memory: pieces of it, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Memory(pub(crate) Vec<(u64, Vec<u8>)>);

impl Memory {
    /// Bytes that somebody may touch.
    pub(crate) fn at(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        assert!(address.is_multiple_of(bytes as u64), "{address:#x} is not aligned to {bytes}");
        let place =
            |(start, piece): &&mut (u64, Vec<u8>)| (*start..*start + piece.len() as u64).contains(&address);
        let (start, piece) =
            self.0.iter_mut().find(place).unwrap_or_else(|| panic!("nothing at {address:#x}"));
        &mut piece[(address - *start) as usize..][..bytes]
    }
}

struct Warp {
    registers: Vec<Lanes>,
    next: usize,
    steps: usize,
    thread: usize,
    cta: u32,
    /// Groups of copies that were committed, then the one that is open: to, from.
    groups: Vec<Vec<(u64, u64)>>,
}

impl Warp {
    fn new(kernel: &Kernel, warp: usize, cta: u32) -> Warp {
        let registers = vec![[RUBBISH; LANES]; kernel.registers.len()];
        Warp { registers, next: 0, steps: 0, thread: warp * LANES, cta, groups: vec![Vec::new()] }
    }
}

/// Why a warp does not go on by itself.
enum Stop {
    Barrier,
    /// With a vote, and where the result goes.
    Vote(bool, usize),
    Ended,
}

struct Cta<'a> {
    kernel: &'a Kernel,
    parameters: &'a [u64],
    memory: &'a mut Memory,
    shared: Vec<u8>,
    copies: Copies,
    warps: Vec<Warp>,
}

impl Cta<'_> {
    fn run(&mut self) {
        loop {
            let mut warps = std::mem::take(&mut self.warps);
            let stops: Vec<Stop> = warps.iter_mut().map(|warp| self.go_on(warp)).collect();
            let any = stops.iter().any(|stop| matches!(stop, Stop::Vote(true, _)));
            let ended = stops.iter().filter(|stop| matches!(stop, Stop::Ended)).count();
            assert!(ended == 0 || ended == warps.len(), "some warps ended, others wait");
            for (warp, stop) in warps.iter_mut().zip(&stops) {
                if let Stop::Vote(_, register) = stop {
                    warp.registers[*register] = [u64::from(any); LANES];
                }
            }
            if ended > 0 {
                return;
            }
            self.warps = warps;
        }
    }

    fn go_on(&mut self, warp: &mut Warp) -> Stop {
        let kernel = self.kernel;
        loop {
            warp.steps += 1;
            assert!(warp.steps < STEPS_MAX, "a warp does not come to an end");
            let Instruction { guard, code, operands } = &kernel.instructions[warp.next];
            warp.next += 1;
            let active = guard.map_or([true; LANES], |guard| warp.registers[guard].map(|lane| lane == 1));
            match (code.as_str(), &operands[..]) {
                ("ret", []) => return Stop::Ended,
                ("bar.sync", [_]) => return Stop::Barrier,
                ("bar.red.or.pred", [Operand::Register(to), _, Operand::Register(vote)]) => {
                    return Stop::Vote(warp.registers[*vote].contains(&1), *to);
                }
                ("bra", [Operand::Name(label)]) => {
                    assert!(active.iter().all(|lane| *lane == active[0]), "lanes part at {label}");
                    warp.next = if active[0] { kernel.labels[label] } else { warp.next };
                }
                ("cp.async.commit_group", []) => warp.groups.push(Vec::new()),
                ("cp.async.wait_group", [Operand::Number(left)]) => {
                    while warp.groups.len() - 1 > *left as usize {
                        let group = warp.groups.remove(0);
                        group.into_iter().for_each(|(to, from)| self.copy(to, from));
                    }
                }
                (code, operands) => {
                    let lanes = (0..LANES).filter(|lane| active[*lane]);
                    lanes.for_each(|lane| self.step(warp, lane, code, operands));
                    if code.starts_with("shfl") {
                        // Sources are other lanes' values of before: done once all have been read.
                        let Operand::Register(to) = operands[0] else { panic!("{code} {operands:?}") };
                        warp.registers[to] = warp.registers.pop().expect("pushed by the lanes");
                    }
                }
            }
        }
    }

    fn copy(&mut self, to: u64, from: u64) {
        let bytes = self.memory.at(from, 16).to_vec();
        self.shared[to as usize..][..16].copy_from_slice(&bytes);
    }

    fn value(&self, warp: &Warp, lane: usize, operand: &Operand) -> u64 {
        match operand {
            Operand::Register(register) => warp.registers[*register][lane],
            Operand::Number(value) => *value,
            Operand::Memory { base, offset } => warp.registers[*base][lane].wrapping_add(*offset),
            Operand::Vector(parts) => {
                warp.registers[parts[0]][lane] & 0xffff_ffff | warp.registers[parts[1]][lane] << 32
            }
            Operand::Name(name) => match name.as_str() {
                "%tid.x" => (warp.thread + lane) as u64,
                "%ctaid.x" => u64::from(warp.cta),
                // The only array in shared memory.
                "room" => 0,
                name => {
                    let place = self.kernel.parameters.iter().position(|known| known == name);
                    self.parameters[place.unwrap_or_else(|| panic!("what is {name}?"))]
                }
            },
        }
    }

    fn step(&mut self, warp: &mut Warp, lane: usize, code: &str, operands: &[Operand]) {
        let at = |place: usize| self.value(warp, lane, &operands[place]);
        let low = |place: usize| at(place) as u32;
        let result = match code {
            "mov.u32" | "cvt.u64.u32" => u64::from(low(1)),
            "mov.u64" | "mov.b64" | "ld.param.u64" | "cvta.to.global.u64" => at(1),
            "add.u32" => u64::from(low(1).wrapping_add(low(2))),
            "sub.u32" => u64::from(low(1).wrapping_sub(low(2))),
            "and.b32" => u64::from(low(1) & low(2)),
            "or.b32" => u64::from(low(1) | low(2)),
            "shr.u32" => u64::from(low(1) >> low(2)),
            "mad.lo.u32" => u64::from(low(1).wrapping_mul(low(2)).wrapping_add(low(3))),
            "mad.wide.u32" => (u64::from(low(1)) * u64::from(low(2))).wrapping_add(at(3)),
            "add.u64" => at(1).wrapping_add(at(2)),
            "mul.lo.u64" => at(1).wrapping_mul(at(2)),
            "shl.b64" => at(1) << low(2),
            "setp.lt.u64" => u64::from(at(1) < at(2)),
            "setp.ge.u64" => u64::from(at(1) >= at(2)),
            "setp.ge.u32" => u64::from(low(1) >= low(2)),
            "setp.gt.u32" => u64::from(low(1) > low(2)),
            "setp.lt.u32" => u64::from(low(1) < low(2)),
            "setp.ne.u32" => u64::from(low(1) != low(2)),
            "setp.eq.u32" => u64::from(low(1) == low(2)),
            "selp.b32" => u64::from(if at(3) == 1 { low(1) } else { low(2) }),
            "shfl.sync.bfly.b32" => {
                let [Operand::Register(from), Operand::Number(31), Operand::Number(0xffff_ffff)] =
                    [&operands[1], &operands[3], &operands[4]]
                else {
                    panic!("{code} {operands:?}")
                };
                let value = warp.registers[*from][lane ^ at(2) as usize];
                if lane == 0 {
                    warp.registers.push([RUBBISH; LANES]);
                }
                warp.registers.last_mut().expect("just pushed")[lane] = value & 0xffff_ffff;
                return;
            }
            "ld.global.u64" | "ld.global.nc.u64" => {
                u64::from_le_bytes(self.memory.at(at(1), 8).try_into().unwrap())
            }
            "ld.global.nc.L1::evict_last.v4.u32" => {
                let bytes = self.memory.at(at(1), 16).to_vec();
                return spread(warp, lane, &operands[0], &bytes, 4);
            }
            "ld.shared.v4.u32" | "ld.shared.v2.u64" => {
                let each = if code.ends_with("v4.u32") { 4 } else { 8 };
                assert!(at(1).is_multiple_of(16), "{code} at {:#x}", at(1));
                return spread(warp, lane, &operands[0], &self.shared[at(1) as usize..][..16], each);
            }
            "st.global.u64" => {
                let (place, value) = (at(0), at(1));
                return self.memory.at(place, 8).copy_from_slice(&value.to_le_bytes());
            }
            "st.shared.u64" => {
                let (place, value) = (at(0) as usize, at(1));
                assert!(place.is_multiple_of(8), "{code} at {place:#x}");
                return self.shared[place..][..8].copy_from_slice(&value.to_le_bytes());
            }
            "red.global.add.u64" => {
                let (place, value) = (at(0), at(1));
                let bytes = self.memory.at(place, 8);
                let before = u64::from_le_bytes((&*bytes).try_into().unwrap());
                return bytes.copy_from_slice(&before.wrapping_add(value).to_le_bytes());
            }
            "cp.async.cg.shared.global.L2::128B" => {
                let (to, from) = (at(0), at(1));
                assert_eq!((to % 16, at(2)), (0, 16), "{code}");
                match self.copies {
                    Copies::Early => self.copy(to, from),
                    Copies::Late => warp.groups.last_mut().expect("one is open").push((to, from)),
                }
                return;
            }
            _ => panic!("the interpreter does not know {code}"),
        };
        match &operands[0] {
            Operand::Register(to) => warp.registers[*to][lane] = result,
            to => spread(warp, lane, to, &result.to_le_bytes(), 4),
        }
    }
}

/// Puts bytes into a vector of registers, `each` a register.
fn spread(warp: &mut Warp, lane: usize, to: &Operand, bytes: &[u8], each: usize) {
    let Operand::Vector(registers) = to else { panic!("{to:?} is no vector") };
    assert_eq!(registers.len() * each, bytes.len());
    for (register, bytes) in registers.iter().zip(bytes.chunks(each)) {
        let mut word = [0; 8];
        word[..each].copy_from_slice(bytes);
        warp.registers[*register][lane] = u64::from_le_bytes(word);
    }
}
