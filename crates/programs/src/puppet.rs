//! A program that does what it is told, a line at a time: for tests of what a program's calls lead to.
//!
//! | line | what it does |
//! |---|---|
//! | `launch N MS` | launches N kernels that run for so many milliseconds each, in the default stream |
//! | `launch-beside N MS` | the same in a second stream that does not wait for the first |
//! | `launch-here N MS` | the same in the default stream of the context that was made last |
//! | `synchronize`, `stream`, `beside` | waits for the context, the default stream, the second stream |
//! | `event` | records an event in the default stream and waits for it |
//! | `join` | makes the default stream wait for the second one |
//! | `read` | copies a word from the device |
//! | `graph N MS` | captures so many kernels, launches them as a graph, in the second stream |
//! | `launch-ex MS`, `launch-cooperative MS` | one kernel in the default stream, by other functions |
//! | `instantiate MS`, `launch-graph` | captures one kernel as a graph; launches that, in the default stream |
//! | `requests N MS`, `requests-by-chance N MS` | so many short kernels that are waited for, so far apart, or so on average |
//! | `serve N MS`, `serve-hinted N MS` | so many requests so far apart, each an input, a pause and a short kernel that is waited for; the second tells of them, by `librota` (`ROTA_SDK`) |
//! | `poll`, `poll-event` | looks at the default stream, or at the event, recorded there, until all of it is done |
//! | `allocate`, `free` | device memory of one mebibyte |
//! | `keep MIB`, `check` | fills so much more memory, in pieces; looks whether all of that is as it was |
//! | `refill` | fills all of that with what it has, by kernels, and does not wait |
//! | `change BYTE` | fills all of that with other bytes, moved by this one, and waits for the context |
//! | `fill KIB` | allocates pieces of so many kibibytes until there is no more, and says how many bytes that was |
//! | `empty` | frees them |
//! | `context` | makes another context, and leaves it alone |
//! | `context-on DEVICE` | makes another context on a device, in which the next lines are done |
//! | `end-context` | ends it; the next lines are done in the one before |
//! | `peer`, `no-peer CODE` | lets it use the memory of the first context's device; that must fail with this code |
//! | `capture` | begins a capture of the second stream, and leaves it on |
//! | `map FILE` | maps a file, as the dynamic linker does with libraries |
//! | `look` | says, as JSON, what it sees of memory |
//! | `host MS` | sleeps |
//! | `share FILE BYTES BYTE` | allocates so much, filled with this byte, and writes a name for other processes to a file |
//! | `open FILE`, `close` | opens what another process shared; closes what was opened last |
//! | `not-open FILE CODE` | tries to open it, which must fail with this code |
//! | `fill-shared BYTE`, `fill-opened BYTE` | fills what was shared, or opened, last |
//! | `see-shared BYTE`, `see-opened BYTE` | looks whether all of it is this byte |
//! | `free-shared` | frees what was shared last |
//! | `managed BYTES`, `free-managed` | managed memory |
//! | `no-managed BYTES` | managed memory, which must be out of memory |
//! | `ordered BYTES`, `free-ordered` | memory in the order of the default stream; frees it and waits |
//! | `create BYTES` | creates and maps memory that can be exported |
//! | `no-access DEVICE` | opens what was created last to a device, which must fail |
//! | `export` | exports it |
//! | `export-to FILE`, `import FILE` | exports it, and leaves word of that in a file; imports what another process exported so |
//! | `large MIB BYTE`, `free-large` | one allocation of so much, filled with this byte; frees the last |
//! | `fill-large BYTE`, `see-large` | fills all of those; looks whether all of them are as they were filled |
//! | `prefer-host CODE` | would rather have the last in the host's memory, and is answered by this code |
//! | `feed MS` | for so long another thread gives the default stream more than it can do, and records the event behind each |
//! | `await-event` | waits for the event |
//! | `capture-soon AFTER MS` | another thread captures a stream, after so many milliseconds, for so many |
//! | `thread` | waits for the other thread, and is answered by the code that it ended with |
//!
//! After each line it prints the line, how many microseconds it took, and what there is to say.

mod large;
mod launches;
mod look;
mod requests;
mod sharing;
mod threads;

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUstream,
    CUstreamCaptureMode,
};

use crate::api::ApiError;
use crate::bench::Bench;
use crate::kernels::{FILL, SPIN};
use large::Large;
use launches::Launches;
use look::Look;
use requests::Requests;
use sharing::Shared;
use threads::Threads;

/// Flag of a stream that does not wait for the default one.
const NON_BLOCKING: u32 = 1;

/// Why a puppet ends early.
#[derive(Debug, thiserror::Error)]
pub enum PuppetError {
    /// There is no driver.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Nothing can be read or written.
    #[error("the lines cannot be read or answered: {0}")]
    Lines(#[from] std::io::Error),
    /// A line that it does not know.
    #[error("\"{0}\" is not something this program does")]
    Unknown(String),
    /// A call failed.
    #[error("\"{0}\" failed: {1}")]
    Call(String, CUresult),
    /// The first calls failed.
    #[error("the GPU cannot be used: {0}")]
    Beginning(String),
}

struct Puppet {
    bench: Bench,
    beside: CUstream,
    event: CUevent,
    word: CUdeviceptr,
    extra: Vec<CUdeviceptr>,
    kept: Vec<CUdeviceptr>,
    /// What is added to the bytes of memory that is kept.
    moved_by: u8,
    shared: Shared,
    large: Large,
    launches: Launches,
    requests: Requests,
    threads: Threads,
    contexts: Vec<CUcontext>,
    filled: Vec<CUdeviceptr>,
    /// What there is to say of the last line.
    said: String,
}

/// Memory that is kept lies in pieces of this size.
const PIECE_MIB: u64 = 4;
const PIECE_BYTES: usize = (PIECE_MIB << 20) as usize;

/// Does what the lines say until they end.
pub fn run(lines: impl BufRead, mut answers: impl Write) -> Result<(), PuppetError> {
    let bench = Bench::with_context()?;
    let (beside, event, word) = (bench.stream(NON_BLOCKING), bench.event(0), bench.alloc(8));
    bench.function(SPIN);
    let trouble = bench.take_record();
    if !trouble.is_empty() {
        return Err(PuppetError::Beginning(trouble));
    }
    let mut puppet = Puppet {
        bench,
        beside,
        event,
        word,
        extra: Vec::new(),
        kept: Vec::new(),
        moved_by: 0,
        shared: Shared::default(),
        large: Large::default(),
        launches: Launches::default(),
        requests: Requests::default(),
        threads: Threads::default(),
        contexts: Vec::new(),
        filled: Vec::new(),
        said: String::new(),
    };
    writeln!(answers, "ready")?;
    answers.flush()?;
    for line in lines.lines() {
        let line = line?;
        let began = Instant::now();
        match puppet.does(&line)? {
            CUresult::SUCCESS => {
                let said = std::mem::take(&mut puppet.said);
                writeln!(answers, "{line} {}{said}", began.elapsed().as_micros())?;
            }
            code => return Err(PuppetError::Call(line, code)),
        }
        answers.flush()?;
    }
    Ok(())
}

impl Puppet {
    fn does(&mut self, line: &str) -> Result<CUresult, PuppetError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse().map_err(|_| PuppetError::Unknown(line.to_owned()));
        let cu = self.bench.cu;
        Ok(match words[..] {
            ["launch", count, ms] => self.launch(CUstream::NULL, number(count)?, number(ms)?),
            ["launch-here", count, ms] => self.launch_here(number(count)?, number(ms)?),
            ["launch-beside", count, ms] => self.launch(self.beside, number(count)?, number(ms)?),
            ["synchronize"] => cu.cuCtxSynchronize(),
            ["stream"] => cu.cuStreamSynchronize(CUstream::NULL),
            ["beside"] => cu.cuStreamSynchronize(self.beside),
            ["event"] => {
                first_error([cu.cuEventRecord(self.event, CUstream::NULL), cu.cuEventSynchronize(self.event)])
            }
            ["await-event"] => cu.cuEventSynchronize(self.event),
            ["join"] => first_error([
                cu.cuEventRecord(self.event, self.beside),
                cu.cuStreamWaitEvent(CUstream::NULL, self.event, 0),
            ]),
            ["read"] => {
                self.bench.read(self.word, 8);
                CUresult::SUCCESS
            }
            ["graph", count, ms] => self.graph(number(count)?, number(ms)?),
            ["allocate"] => {
                self.extra.push(self.bench.alloc(1 << 20));
                CUresult::SUCCESS
            }
            ["free"] => self.extra.pop().map_or(CUresult::INVALID_VALUE, |address| cu.cuMemFree_v2(address)),
            ["keep", mib] => self.keep(number(mib)?),
            ["check"] => self.check(),
            ["refill"] => self.refill(),
            ["change", byte] => self.change(number(byte)? as u8),
            ["fill", kib] => self.fill(number(kib)? as usize * 1024),
            ["empty"] => {
                let filled = std::mem::take(&mut self.filled);
                first_error(filled.into_iter().map(|address| cu.cuMemFree_v2(address)))
            }
            ["context"] => {
                let mut context = CUcontext::NULL;
                first_error([
                    cu.cuCtxCreate_v2(&mut context, 0, self.bench.device),
                    cu.cuCtxPopCurrent_v2(&mut context),
                ])
            }
            ["context-on", device] => {
                let mut context = CUcontext::NULL;
                let code = cu.cuCtxCreate_v2(&mut context, 0, CUdevice(number(device)? as i32));
                self.contexts.push(context);
                code
            }
            ["end-context"] => {
                self.contexts.pop().map_or(CUresult::INVALID_VALUE, |context| cu.cuCtxDestroy_v2(context))
            }
            ["peer"] => cu.cuCtxEnablePeerAccess(self.bench.context, 0),
            ["no-peer", code] => {
                let said = cu.cuCtxEnablePeerAccess(self.bench.context, 0);
                if u64::from(said.0) == number(code)? { CUresult::SUCCESS } else { CUresult::UNKNOWN }
            }
            ["capture"] => cu.cuStreamBeginCapture_v2(self.beside, CUstreamCaptureMode::RELAXED),
            ["map", file] => map(file),
            ["look"] => {
                self.said = format!(" {}", Look::at(&self.bench));
                CUresult::SUCCESS
            }
            ["host", ms] => {
                std::thread::sleep(Duration::from_millis(number(ms)?));
                CUresult::SUCCESS
            }
            _ => match self
                .shared
                .does(&self.bench, &words)
                .or_else(|| self.large.does(&self.bench, &words))
                .or_else(|| self.launches.does(&self.bench, (self.beside, self.event), &words))
                .or_else(|| self.requests.does(&self.bench, self.word, &words))
                .or_else(|| self.threads.does(&self.bench, self.event, &words))
            {
                Some(code) => code,
                None => return Err(PuppetError::Unknown(line.to_owned())),
            },
        })
    }

    fn launch(&self, stream: CUstream, count: u64, ms: u64) -> CUresult {
        self.launch_so(self.bench.function(SPIN), stream, count, ms)
    }

    /// Kernels belong to the context that they were loaded in.
    fn launch_here(&self, count: u64, ms: u64) -> CUresult {
        let function = self.bench.function_in(self.bench.module(SPIN), SPIN);
        self.launch_so(function, CUstream::NULL, count, ms)
    }

    fn launch_so(&self, function: CUfunction, stream: CUstream, count: u64, ms: u64) -> CUresult {
        let launch = |_| self.bench.launch_function(function, (1, 32), stream, &[u64::MAX, ms * 1_000_000]);
        first_error((0..count).map(launch))
    }

    fn keep(&mut self, mib: u64) -> CUresult {
        let cu = self.bench.cu;
        for _ in 0..mib / PIECE_MIB {
            let mut piece = CUdeviceptr(0);
            let byte = self.byte(self.kept.len());
            let code = first_error([
                cu.cuMemAlloc_v2(&mut piece, PIECE_BYTES),
                cu.cuMemsetD8_v2(piece, byte, PIECE_BYTES),
            ]);
            if code != CUresult::SUCCESS {
                return code;
            }
            self.kept.push(piece);
        }
        CUresult::SUCCESS
    }

    fn refill(&self) -> CUresult {
        let (function, count) = (self.bench.function(FILL), PIECE_BYTES as u64 / 8);
        let launch = |(number, piece): (usize, &CUdeviceptr)| {
            let word = u64::from_ne_bytes([self.byte(number); 8]);
            self.bench.launch_function(function, (4, 128), CUstream::NULL, &[piece.0, count, word])
        };
        first_error(self.kept.iter().enumerate().map(launch))
    }

    /// What all bytes of a piece are.
    fn byte(&self, piece: usize) -> u8 {
        (piece as u8).wrapping_add(self.moved_by)
    }

    fn change(&mut self, by: u8) -> CUresult {
        self.moved_by = by;
        let cu = self.bench.cu;
        let pieces = self.kept.iter().enumerate();
        let changed = pieces.map(|(number, piece)| cu.cuMemsetD8_v2(*piece, self.byte(number), PIECE_BYTES));
        match first_error(changed) {
            CUresult::SUCCESS => cu.cuCtxSynchronize(),
            code => code,
        }
    }

    fn fill(&mut self, bytes: usize) -> CUresult {
        loop {
            let mut piece = CUdeviceptr(0);
            match self.bench.cu.cuMemAlloc_v2(&mut piece, bytes) {
                CUresult::SUCCESS => self.filled.push(piece),
                CUresult::OUT_OF_MEMORY => break,
                code => return code,
            }
        }
        self.said = format!(" {}", self.filled.len() * bytes);
        CUresult::SUCCESS
    }

    fn check(&self) -> CUresult {
        let right = |(number, piece): (usize, &CUdeviceptr)| {
            self.bench.read(*piece, PIECE_BYTES).iter().all(|byte| *byte == self.byte(number))
        };
        if self.kept.iter().enumerate().all(right) { CUresult::SUCCESS } else { CUresult::UNKNOWN }
    }

    fn graph(&self, count: u64, ms: u64) -> CUresult {
        let cu = self.bench.cu;
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        first_error([
            cu.cuStreamBeginCapture_v2(self.beside, CUstreamCaptureMode::RELAXED),
            self.launch(self.beside, count, ms),
            cu.cuStreamEndCapture(self.beside, &mut graph),
            cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0),
            cu.cuGraphLaunch(exec, self.beside),
        ])
    }
}

/// Maps the first page of a file, for ever.
fn map(file: &str) -> CUresult {
    let Ok(file) = File::open(file) else { return CUresult::FILE_NOT_FOUND };
    let (nowhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: at an address where nothing is; nobody reads it.
    match unsafe { libc::mmap(nowhere, 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) } {
        libc::MAP_FAILED => CUresult::INVALID_VALUE,
        _ => CUresult::SUCCESS,
    }
}

fn first_error(codes: impl IntoIterator<Item = CUresult>) -> CUresult {
    codes.into_iter().find(|code| *code != CUresult::SUCCESS).unwrap_or(CUresult::SUCCESS)
}
