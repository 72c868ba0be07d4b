//! Random calls that give work, and on streams, events and contexts.

use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUcontext, CUdeviceptr, CUgraph, CUgraphExec,
    CUstreamCaptureMode,
};

use super::world::{Block, World};
use crate::kernels::{ADD, CHECKSUM, FILL, INCREMENT, Kernel, REWRITE, TOUCH_RANDOM};

impl World {
    /// Blocks are aligned: how many whole words this one has.
    fn words(&self, block: usize) -> (u64, u64) {
        let Block { address, bytes, .. } = self.blocks[block];
        (address.0, bytes / 8)
    }

    fn launch(&mut self, kernel: Kernel, stream: usize, parameters: &[u64]) {
        let shape = [(1, 32), (2, 64), (4, 256)][self.dice.index(3)];
        let function = self.bench.function(kernel);
        let code = self.bench.launch_function(function, shape, self.streams[stream], parameters);
        self.note(kernel.entry, code);
    }

    pub(super) fn rewrite(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (address, count) = self.words(block);
        let (seed, step) = (self.dice.word(), self.dice.word());
        self.launch(REWRITE, stream, &[address, count, 0, seed, step]);
    }

    pub(super) fn add(&mut self) {
        let Some((one, stream)) = self.block_in_stream() else { return };
        let Some(two) = self.any_block() else { return };
        self.hand_over(two, stream);
        let ((to, room), (from, count)) = (self.words(one), self.words(two));
        self.launch(ADD, stream, &[to, to, from, room.min(count)]);
    }

    pub(super) fn increment(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (address, count) = self.words(block);
        let rounds = self.dice.below(5);
        self.launch(INCREMENT, stream, &[address, count, rounds, 0]);
    }

    pub(super) fn touch(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (address, count) = self.words(block);
        let (seed, touches) = (self.dice.word(), self.dice.below(500));
        self.launch(TOUCH_RANDOM, stream, &[address, count, seed, touches]);
    }

    pub(super) fn checksum(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (address, count) = self.words(block);
        if count <= 2 {
            return;
        }
        // The sums go into the last two words.
        let sums = CUdeviceptr(address + (count - 2) * 8);
        self.note("cuMemsetD8Async", self.cu().cuMemsetD8Async(sums, 0, 16, self.streams[stream]));
        self.launch(CHECKSUM, stream, &[address, count - 2, sums.0]);
        self.wait_for_stream(stream);
        let mut bytes = [0_u8; 16];
        self.note("cuMemcpyDtoH", self.cu().cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), sums, 16));
        self.saw(&bytes);
    }

    pub(super) fn launch_wrongly(&mut self) {
        let shape = [(0, 32), (1, 0), (1, 1025)][self.dice.index(3)];
        let (function, stream) = (self.bench.function(FILL), self.streams[0]);
        self.note("fill", self.bench.launch_function(function, shape, stream, &[0, 0, 0]));
    }

    pub(super) fn replace_stream(&mut self) {
        let stream = 1 + self.dice.index(self.streams.len() - 1);
        self.wait_for_stream(stream);
        self.note("cuStreamQuery", self.cu().cuStreamQuery(self.streams[stream]));
        self.note("cuStreamDestroy", self.cu().cuStreamDestroy_v2(self.streams[stream]));
        let flags = [0, CU_STREAM_NON_BLOCKING][self.dice.index(2)];
        let created = self.cu().cuStreamCreate(&mut self.streams[stream], flags);
        self.note("cuStreamCreate", created);
        let mut found = 99;
        self.note("cuStreamGetFlags", self.cu().cuStreamGetFlags(self.streams[stream], &mut found));
        self.saw_number(u64::from(found));
    }

    pub(super) fn record(&mut self) {
        let (event, stream) = (self.dice.index(self.events.len()), self.dice.index(self.streams.len()));
        self.note("cuEventRecord", self.cu().cuEventRecord(self.events[event], self.streams[stream]));
        if self.dice.below(2) == 0 {
            self.note("cuEventSynchronize", self.cu().cuEventSynchronize(self.events[event]));
            self.note("cuEventQuery", self.cu().cuEventQuery(self.events[event]));
        }
    }

    pub(super) fn wait(&mut self) {
        let (event, stream) = (self.dice.index(self.events.len()), self.dice.index(self.streams.len()));
        let code = self.cu().cuStreamWaitEvent(self.streams[stream], self.events[event], 0);
        self.note("cuStreamWaitEvent", code);
    }

    pub(super) fn ask_event(&mut self) {
        let (one, two) = (self.dice.index(self.events.len()), self.dice.index(self.events.len()));
        for event in [one, two] {
            self.note("cuEventSynchronize", self.cu().cuEventSynchronize(self.events[event]));
        }
        let mut milliseconds = 0.0;
        let (begin, end) = (self.events[one], self.events[two]);
        self.note("cuEventElapsedTime", self.cu().cuEventElapsedTime(&mut milliseconds, begin, end));
    }

    pub(super) fn replace_event(&mut self) {
        let event = self.dice.index(self.events.len());
        self.note("cuEventDestroy", self.cu().cuEventDestroy_v2(self.events[event]));
        let flags = [0, CU_EVENT_DISABLE_TIMING][self.dice.index(2)];
        let created = self.cu().cuEventCreate(&mut self.events[event], flags);
        self.note("cuEventCreate", created);
        self.note("cuEventCreate", self.cu().cuEventCreate(std::ptr::null_mut(), flags));
    }

    pub(super) fn graph(&mut self) {
        let Some((block, _)) = self.block_in_stream() else { return };
        let stream = 1 + self.dice.index(self.streams.len() - 1);
        self.hand_over(block, stream);
        let ((address, count), cu, handle) = (self.words(block), self.cu(), self.streams[stream]);
        self.bench.function(INCREMENT);
        self.note(
            "cuStreamBeginCapture",
            cu.cuStreamBeginCapture_v2(handle, CUstreamCaptureMode::THREAD_LOCAL),
        );
        if self.dice.below(4) == 0 {
            self.note("cuStreamQuery", cu.cuStreamQuery(handle));
        }
        self.note(
            "cuMemsetD8Async",
            cu.cuMemsetD8Async(CUdeviceptr(address), 3, (count * 8) as usize, handle),
        );
        self.launch(INCREMENT, stream, &[address, count, 2, 0]);
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        if self.note("cuStreamEndCapture", cu.cuStreamEndCapture(handle, &mut graph)) {
            self.note("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            self.note("cuGraphLaunch", cu.cuGraphLaunch(exec, handle));
            self.note("cuGraphLaunch", cu.cuGraphLaunch(exec, handle));
            self.wait_for_stream(stream);
            self.note("cuGraphExecDestroy", cu.cuGraphExecDestroy(exec));
            self.note("cuGraphDestroy", cu.cuGraphDestroy(graph));
        }
    }

    pub(super) fn contexts(&mut self) {
        let (cu, context) = (self.cu(), self.bench.context);
        let mut found = CUcontext::NULL;
        self.note("cuCtxPushCurrent", cu.cuCtxPushCurrent_v2(context));
        self.note("cuCtxSetCurrent", cu.cuCtxSetCurrent(CUcontext::NULL));
        self.note("cuMemAlloc", cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
        self.note("cuCtxPopCurrent", cu.cuCtxPopCurrent_v2(&mut found));
        self.note("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
        self.note("cuCtxGetCurrent", cu.cuCtxGetCurrent(&mut found));
        self.saw_number(u64::from(found == context));
    }
}
