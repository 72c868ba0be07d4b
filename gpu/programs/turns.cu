// Rewrites every word of its memory in every step, and knows at the end what each of them must be.
//
//   turns --gib G --alloc-mib M --seed S --rounds R (--steps N | --stop-file F) [...]     works, checks, prints one line of JSON
//   turns --gib G --alloc-mib M --calibrate-s T                     prints how many rounds make a step of T seconds
//
// A word begins as a mix of the seed and its place. A round makes a*x + c of it, modulo 2^64, with a = 1 modulo 4 and an odd c
// of its place; a step is R rounds of every word, in one kernel. (a - 1)*x + c is odd, so a round changes every word; words of
// different places have nothing to do with each other, so nothing compresses; and n rounds are a^n*x + c*(1 + a + ... + a^(n-1)),
// so that one pass at the end tells whether any word is not what it must be. A block that was lost, or is of an older step,
// stays wrong through all rounds after it.
//
// The file of --progress-file holds words of 64 bits: how many steps are done, then for each of them when it was done on
// CLOCK_MONOTONIC, in nanoseconds. The file of --context-file is made when its context is, and memory is taken only when that of
// --memory-file is there. With --read-only steps read every word and write none. With --flips T they read every word, and a step
// that begins T seconds or more after the last one that did turns one bit over in about half of all blocks of 2 MiB, each time
// another bit and another half; at the end all are turned back before words are looked at. Its line has when each of these steps
// began. With --hot-gib G steps work on the last G GiB only, which were allocated last; the rest is filled once, and checked at the
// end like all. With --sleep-s T it sleeps for T seconds in each step, once the kernel is handed over and before it is waited for: no
// thread of it is in the driver then. Ends with 0 when it did all that was asked: how many words are wrong is in its line.
#include "turns.h"
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "turns.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const int THREADS = 256;
static const int EACH = 8;                   // words of a thread at a time: enough to hide how long a multiplication takes
static const int BLOCKS_EACH = 4;            // blocks that a multiprocessor has at a time: all of them begin at once
static const size_t CHUNK = THREADS * EACH;  // words of a block at a time: 16 KiB
static const size_t BLOCK = (2 << 20) / sizeof(word);
static const size_t STEPS_MAX = 1 << 20;     // that a progress file has room for

// All of the memory, as kernels see it: chunks in a row over pieces of one size.
struct Memory {
    word *const *pieces;
    size_t chunks, chunks_each;
    word seed;
    size_t first; // that steps work on
    __device__ word *at(size_t chunk) const { return pieces[chunk / chunks_each] + chunk % chunks_each * CHUNK; }
};

// What one pass over all words finds. `placed` weighs each word by its place, `first` is the first wrong one.
struct Found {
    word sum, xored, placed, wrong, first;
};

__global__ void __launch_bounds__(THREADS, BLOCKS_EACH) fill(Memory memory)
{
    for (size_t chunk = blockIdx.x; chunk < memory.chunks; chunk += gridDim.x) {
        word *words = memory.at(chunk);
        for (size_t i = threadIdx.x; i < CHUNK; i += THREADS) words[i] = first_word(memory.seed, chunk * CHUNK + i);
    }
}

__global__ void __launch_bounds__(THREADS, BLOCKS_EACH) rewrite(Memory memory, long rounds)
{
    for (size_t chunk = memory.first + blockIdx.x; chunk < memory.chunks; chunk += gridDim.x) {
        word *words = memory.at(chunk) + threadIdx.x, x[EACH], c[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            x[i] = words[i * THREADS];
            c[i] = addend(chunk * CHUNK + i * THREADS + threadIdx.x);
        }
        for (long round = 0; round < rounds; round++) {
#pragma unroll
            for (int i = 0; i < EACH; i++) x[i] = FACTOR * x[i] + c[i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) words[i * THREADS] = x[i];
    }
}

__global__ void __launch_bounds__(THREADS, BLOCKS_EACH) look(Memory memory, long rounds, word *never)
{
    for (size_t chunk = memory.first + blockIdx.x; chunk < memory.chunks; chunk += gridDim.x) {
        word *words = memory.at(chunk) + threadIdx.x, x[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] = words[i * THREADS];
        for (long round = 0; round < rounds; round++) {
#pragma unroll
            for (int i = 0; i < EACH; i++) x[i] = FACTOR * x[i] + 1;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (x[i] == 0x5eed) *never = x[i]; // so seldom that it does not matter, and the compiler cannot know
    }
}

// Turns one bit over in about half of the blocks, for the time of this number. An odd number of 24 bits times that makes it another
// bit each time, so none is turned back before the end.
__global__ void flip(Memory memory, word number, word *flipped)
{
    size_t block = (size_t)blockIdx.x * blockDim.x + threadIdx.x, blocks = memory.chunks * CHUNK / BLOCK;
    if (block >= blocks || mixed(memory.seed ^ mixed(block * STEPS_MAX + number)) & 1) return;
    word start = mixed(memory.seed + mixed(~block)), bit = (start + number * 0x9e3779b1) % (BLOCK * 64), place = block * BLOCK + bit / 64;
    memory.at(place / CHUNK)[place % CHUNK] ^= 1ull << bit % 64;
    atomicAdd(flipped, 1);
}

__global__ void __launch_bounds__(THREADS, BLOCKS_EACH) check(Memory memory, Rounds rounds, Found *found)
{
    Found mine = {0, 0, 0, 0, ~0ull};
    for (size_t chunk = blockIdx.x; chunk < memory.chunks; chunk += gridDim.x) {
        const word *words = memory.at(chunk);
        for (size_t i = threadIdx.x; i < CHUNK; i += THREADS) {
            word place = chunk * CHUNK + i, x = words[i];
            mine.sum += x;
            mine.xored ^= x;
            mine.placed += x * (2 * place + 1);
            word began = first_word(memory.seed, place);
            if (x != (chunk < memory.first ? began : rounds.of(began, place))) {
                mine.wrong++;
                mine.first = min(mine.first, place);
            }
        }
    }
    atomicAdd(&found->sum, mine.sum);
    atomicXor(&found->xored, mine.xored);
    atomicAdd(&found->placed, mine.placed);
    atomicAdd(&found->wrong, mine.wrong);
    atomicMin(&found->first, mine.first);
}

struct Options {
    double gib = 12, hot_gib = 0, calibrate_s = 0, sleep_s = 0, flips_s = 0;
    size_t alloc_mib = 1024, steps = 0;
    long rounds = 64;
    word seed = 1;
    bool read_only = false, flips = false;
    std::string ready, start, stop, progress, context, memory;
};

static Options options(int count, char **given)
{
    Options found;
    for (int i = 1; i < count; i++) {
        std::string flag = given[i];
        if (flag == "--read-only") {
            found.read_only = true;
            continue;
        }
        if (i + 1 == count) fprintf(stderr, "turns: %s has no value, or is not known\n", given[i]), exit(2);
        const char *value = given[++i];
        if (flag == "--gib") found.gib = atof(value);
        else if (flag == "--hot-gib") found.hot_gib = atof(value);
        else if (flag == "--alloc-mib") found.alloc_mib = strtoull(value, nullptr, 10);
        else if (flag == "--seed") found.seed = strtoull(value, nullptr, 10);
        else if (flag == "--rounds") found.rounds = atol(value);
        else if (flag == "--steps") found.steps = strtoull(value, nullptr, 10);
        else if (flag == "--calibrate-s") found.calibrate_s = atof(value);
        else if (flag == "--sleep-s") found.sleep_s = atof(value);
        else if (flag == "--flips") found.read_only = found.flips = true, found.flips_s = atof(value);
        else if (flag == "--ready-file") found.ready = value;
        else if (flag == "--start-file") found.start = value;
        else if (flag == "--stop-file") found.stop = value;
        else if (flag == "--progress-file") found.progress = value;
        else if (flag == "--context-file") found.context = value;
        else if (flag == "--memory-file") found.memory = value;
        else fprintf(stderr, "turns: %s is not known\n", flag.c_str()), exit(2);
    }
    if (found.gib <= 0 || found.hot_gib < 0 || found.hot_gib > found.gib || !found.alloc_mib || found.rounds < 1 || found.steps > STEPS_MAX)
        fprintf(stderr, "turns: a size, the rounds or the steps cannot be\n"), exit(2);
    if (found.calibrate_s <= 0 && !found.steps && found.stop.empty()) fprintf(stderr, "turns: give --steps or --stop-file\n"), exit(2);
    return found;
}

static word now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static bool there(const std::string &path)
{
    return !path.empty() && !access(path.c_str(), F_OK);
}

// The progress file, or memory of this size that nobody else sees.
static volatile word *progress_in(const std::string &path)
{
    size_t bytes = (1 + STEPS_MAX) * sizeof(word);
    int file = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (!path.empty()) {
        file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
        flags = MAP_SHARED;
        if (file < 0 || ftruncate(file, bytes)) perror(path.c_str()), exit(1);
    }
    void *place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (place == MAP_FAILED) perror("mmap"), exit(1);
    return (volatile word *)place;
}

int main(int count, char **given)
{
    Options wanted = options(count, given);
    volatile word *progress = progress_in(wanted.progress);
    size_t piece_bytes = wanted.alloc_mib << 20;
    size_t pieces = std::max(1.0, wanted.gib * (1 << 30) / piece_bytes + 0.5);
    size_t chunks_each = piece_bytes / sizeof(word) / CHUNK;
    if (!wanted.context.empty()) {
        NEED(cudaFree(nullptr));
        close(open(wanted.context.c_str(), O_CREAT | O_WRONLY, 0644));
    }
    while (!wanted.memory.empty() && !there(wanted.memory)) usleep(500);
    // Its memory first, and in a row: whoever has to make room for it does so in one go.
    std::vector<word *> list(pieces);
    for (word *&piece : list) NEED(cudaMalloc(&piece, piece_bytes));
    word **table, *never, *flipped, flips = 0;
    Found *found;
    NEED(cudaMalloc(&table, pieces * sizeof *table));
    NEED(cudaMalloc(&found, sizeof *found));
    NEED(cudaMalloc(&never, sizeof *never));
    NEED(cudaMalloc(&flipped, sizeof *flipped));
    NEED(cudaMemset(flipped, 0, sizeof *flipped));
    NEED(cudaMemcpy(table, list.data(), pieces * sizeof *table, cudaMemcpyHostToDevice));
    int units;
    NEED(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0));
    int grid = units * BLOCKS_EACH;
    size_t chunks = pieces * chunks_each, hot = wanted.hot_gib * (1 << 30) / sizeof(word) / CHUNK;
    Memory memory = {table, chunks, chunks_each, wanted.seed, hot ? chunks - std::min(hot, chunks) : 0};

    auto done = [&] {
        NEED(cudaGetLastError());
        NEED(cudaDeviceSynchronize());
    };
    auto turn_over = [&](word number) {
        size_t blocks = memory.chunks * CHUNK / BLOCK;
        flip<<<(blocks + THREADS - 1) / THREADS, THREADS>>>(memory, number, flipped);
    };
    auto step = [&](long rounds, double asleep_s = 0) {
        if (wanted.read_only) look<<<grid, THREADS>>>(memory, rounds, never);
        else rewrite<<<grid, THREADS>>>(memory, rounds);
        for (word until = now_ns() + (word)(asleep_s * 1e9); asleep_s > 0 && now_ns() < until;) usleep(1000);
        done();
    };
    auto checked = [&](word steps) {
        Found none = {0, 0, 0, 0, ~0ull}, all;
        NEED(cudaMemcpy(found, &none, sizeof none, cudaMemcpyHostToDevice));
        check<<<grid, THREADS>>>(memory, Rounds::in_all(wanted.read_only ? 0 : steps * wanted.rounds), found);
        done();
        NEED(cudaMemcpy(&all, found, sizeof all, cudaMemcpyDeviceToHost));
        return all;
    };
    // All that will run is loaded now, then the memory is filled anew.
    fill<<<grid, THREADS>>>(memory);
    turn_over(0);
    step(1);
    checked(0);
    fill<<<grid, THREADS>>>(memory);
    done();

    if (wanted.calibrate_s > 0) {
        // The time of a step is a line over its rounds, once they take longer than the memory does.
        auto seconds = [&](long rounds) {
            double least = 1e9;
            for (int i = 0; i < 3; i++) {
                word began = now_ns();
                step(rounds);
                least = std::min(least, (now_ns() - began) / 1e9);
            }
            return least;
        };
        double few = seconds(128), many = seconds(512), each = (many - few) / (512 - 128);
        long rounds = std::max(1L, (long)((wanted.calibrate_s - (few - 128 * each)) / each + 0.5));
        double real = seconds(rounds);
        printf("{\"rounds\": %ld, \"step_s\": %.6f, \"least_s\": %.6f}\n", rounds, real, seconds(1));
        fflush(stdout);
        _exit(0);
    }

    if (!wanted.ready.empty()) close(open(wanted.ready.c_str(), O_CREAT | O_WRONLY, 0644));
    while (!wanted.start.empty() && !there(wanted.start)) usleep(2000);
    word began = now_ns(), ended = began, steps = 0, hole = 0, turned = 0, turned_ns = 0;
    std::string turns_began;
    size_t most = wanted.steps ? wanted.steps : STEPS_MAX;
    NEED(cudaMemset(flipped, 0, sizeof *flipped));
    while (steps < most && !there(wanted.stop)) {
        if (wanted.flips && now_ns() - turned_ns >= (word)(wanted.flips_s * 1e9)) {
            turns_began += (turned ? ", " : "") + std::to_string(now_ns());
            turn_over(turned++);
            turned_ns = now_ns();
        }
        step(wanted.rounds, wanted.sleep_s);
        word now = now_ns();
        hole = std::max(hole, now - ended);
        ended = now;
        progress[1 + steps] = now;
        __atomic_store_n(&progress[0], ++steps, __ATOMIC_RELEASE);
    }
    NEED(cudaMemcpy(&flips, flipped, sizeof flips, cudaMemcpyDeviceToHost));
    for (word number = 0; number < turned; number++) turn_over(number);
    Found all = checked(steps);
    printf("{\"program\": \"turns\", \"seed\": %llu, \"bytes\": %zu, \"rounds\": %ld, \"steps\": %llu, \"read_only\": %s, \"flips\": %llu, \"turned\": %llu, \"turned_ns\": [%s], "
           "\"began_ns\": %llu, \"ended_ns\": %llu, \"gpu_phase_s\": %.6f, \"hole_s\": %.6f, "
           "\"sum\": \"%016llx\", \"xor\": \"%016llx\", \"placed\": \"%016llx\", \"wrong\": %llu, \"first_wrong\": %lld}\n",
           wanted.seed, pieces * piece_bytes, wanted.rounds, steps, wanted.read_only ? "true" : "false", flips, turned, turns_began.c_str(), began, ended,
           (ended - began) / 1e9, hole / 1e9, all.sum, all.xored, all.placed, all.wrong, (long long)all.first);
    fflush(stdout);
    _exit(0); // what the driver would tidy up now, it does anyway
}
