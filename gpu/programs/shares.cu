// Keeps the GPU busy in one of several ways, and counts what the GPU has done where others can read it at any time.
//
//   shares KIND[:NUMBER] FILE [CORE]    runs until FILE.stop is there; FILE holds one 64-bit count for each stream, written by the GPU itself
//
// "gaps" sleeps for so many microseconds after each 2.2 ms of work. "memory" rewrites so many GiB, or one. The thread that launches stays on CORE, if one is given: elsewhere somebody may
// spin beside it, or not. The kernel's first block adds to its stream's count, several times in a long kernel, so that a kernel
// frozen in its middle has counted what it did. Ends with one line of JSON.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "shares.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

typedef unsigned long long word;
static const int STREAMS = 4;
static const int FULL = 1056; // blocks of 256 threads that fill an H200 once
static const int US_50 = 1850; // turns of the loop in 50 us there

__device__ void count_one(word *here, volatile word *there)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) *there = ++*here;
}

__global__ void compute(int chunks, int turns, float *out, word *here, volatile word *there)
{
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 1.1f;
    for (int chunk = 0; chunk < chunks; chunk++) {
        for (int i = 0; i < turns; i++) a = fmaf(a, b, c), d = fmaf(d, b, a), c = fmaf(c, b, d);
        count_one(here, there);
    }
    if (a == 123.f) *out = a + d + c; // never, but the compiler cannot know
}

__global__ void memory(float4 *words, size_t count, word *here, volatile word *there)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        float4 x = words[i];
        x.x += 1, x.y += 1, x.z += 1, x.w += 1;
        words[i] = x;
    }
    count_one(here, there);
}

int main(int given, char **arguments)
{
    if (given != 3 && given != 4) return fprintf(stderr, "shares KIND[:NUMBER] FILE [CORE]\n"), 2;
    std::string kind = arguments[1];
    int number = -1;
    size_t colon = kind.find(':');
    if (colon != std::string::npos) {
        number = atoi(kind.c_str() + colon + 1);
        kind.resize(colon);
    }
    const int pause_us = number >= 0 ? number : 900;
    const size_t BYTES = (number > 0 && kind == "memory" ? size_t(number) : 1) << 30;
    std::string stop = std::string(arguments[2]) + ".stop";
    int file = open(arguments[2], O_RDWR | O_CREAT, 0644);
    if (file < 0 || ftruncate(file, 4096)) return perror(arguments[2]), 1;
    word *shared = (word *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), *there, *here;
    if (shared == MAP_FAILED) return perror("mmap"), 1;
    memset(shared, 0, 4096);
    float *out;
    float4 *words = nullptr;
    cudaStream_t streams[STREAMS];
    NEED(cudaHostRegister(shared, 4096, cudaHostRegisterMapped));
    NEED(cudaHostGetDevicePointer(&there, shared, 0));
    NEED(cudaMalloc(&here, STREAMS * 256));
    NEED(cudaMemset(here, 0, STREAMS * 256));
    NEED(cudaMalloc(&out, 4));
    if (kind == "memory") {
        NEED(cudaMalloc(&words, BYTES));
        NEED(cudaMemset(words, 0, BYTES));
    }
    for (auto &stream : streams) NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NEED(cudaDeviceSynchronize());

    auto fma = [&](int stream, int blocks, int chunks, int turns) {
        compute<<<blocks, 256, 0, streams[stream]>>>(chunks, turns, out, here + stream * 32, there + stream);
    };
    cudaGraph_t graph;
    cudaGraphExec_t exec = nullptr;
    if (kind == "graphs") {
        NEED(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
        for (int i = 0; i < 20; i++) fma(0, FULL, 1, US_50);
        NEED(cudaStreamEndCapture(streams[0], &graph));
        NEED(cudaGraphInstantiate(&exec, graph, 0));
    }
    if (given == 4) {
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET(atoi(arguments[3]), &core);
        if (sched_setaffinity(0, sizeof core, &core)) return perror("sched_setaffinity"), 1;
    }
    long rounds = 0;
    while (access(stop.c_str(), F_OK)) {
        if (kind == "large" || kind == "gaps") {
            for (int i = 0; i < 4; i++) fma(0, FULL, 1, 20000);
        } else if (kind == "small4") {
            for (int i = 0; i < 4; i++)
                for (int s = 0; s < STREAMS; s++) fma(s, 33, 1, 5000);
        } else if (kind == "50us") {
            for (int i = 0; i < 40; i++) fma(0, FULL, 1, US_50);
        } else if (kind == "50ms") {
            fma(0, FULL, 100, US_50 * 10);
        } else if (kind == "compute") {
            for (int i = 0; i < 2; i++) fma(0, FULL, 1, 37000);
        } else if (kind == "memory") {
            for (int i = 0; i < 4; i++) memory<<<FULL, 256, 0, streams[0]>>>(words, BYTES / sizeof *words, here, there);
        } else if (kind == "graphs") {
            for (int i = 0; i < 2; i++) NEED(cudaGraphLaunch(exec, streams[0]));
        } else {
            return fprintf(stderr, "no such kind: %s\n", kind.c_str()), 2;
        }
        NEED(cudaGetLastError());
        if (kind == "small4") NEED(cudaDeviceSynchronize());
        else NEED(cudaStreamSynchronize(streams[0]));
        if (kind == "gaps") usleep(pause_us);
        rounds++;
    }
    word all = 0, real = 0;
    word counts[STREAMS * 32];
    NEED(cudaMemcpy(counts, here, sizeof counts, cudaMemcpyDeviceToHost));
    for (int s = 0; s < STREAMS; s++) all += shared[s], real += counts[s * 32];
    printf("{\"kind\": \"%s\", \"rounds\": %ld, \"counted\": %llu, \"counted_on_the_gpu\": %llu}\n", kind.c_str(), rounds, all, real);
    return all == real ? 0 : 3;
}
