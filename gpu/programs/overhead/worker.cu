// Works when it is told to, and says how much it did: loops of small kernels, loops of allocations.
//
//   set KIND [SIZE]   what to do; answered by "ready"
//   work SECONDS      does it for so long after a lead-in; answered by "COUNT NANOSECONDS"
//   calibrate US      answers how many rounds a kernel of so many microseconds has
//   context NUMBER    launches in that context from now on, made when it is new; 0 is the first; answered by "ready"
//   quit
// Kinds: kernels ROUNDS; plain-pair, plain-batch, async-0, async-max, async-max-loop SIZE. An error ends it with a line on stderr.
#include <cuda.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <time.h>
#include <vector>

static const double LEAD_IN_S = 0.03;
static const int BATCH = 64, LARGE_BATCH = 8, KERNELS_BETWEEN_WAITS = 200;

static void check(CUresult result, const char *call, int line)
{
    if (result == CUDA_SUCCESS) return;
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    fprintf(stderr, "worker.cu:%d %s: %s\n", line, call, name ? name : "?");
    exit(1);
}
#define NEED(call) check((call), #call, __LINE__)

__global__ void spin(float *out, long rounds)
{
    float x = threadIdx.x;
    for (long i = 0; i < rounds; i++) x = x * 0.999f + 1.0f;
    if (x == -1) *out = x; // never, but the compiler cannot know
}

static int64_t now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

struct Place {
    CUcontext context;
    CUstream stream;
    CUdeviceptr out;
};

static CUdevice device;
static std::vector<Place> places;
static CUstream stream; // of the place in use, as is `out`
static CUmemoryPool pool;
static CUdeviceptr held, out;
static std::string kind;
static size_t size;
static std::vector<CUdeviceptr> batch;

static void launch(long rounds)
{
    spin<<<132, 256, 0, (cudaStream_t)stream>>>((float *)out, rounds);
}

static void must_have_launched()
{
    if (cudaError_t code = cudaGetLastError()) {
        fprintf(stderr, "launch: %s\n", cudaGetErrorName(code));
        exit(1);
    }
}

static void use_place(size_t number)
{
    if (number < places.size()) {
        NEED(cuCtxSetCurrent(places[number].context));
    } else if (number == places.size()) {
        Place place;
        if (places.empty()) {
            NEED(cuDevicePrimaryCtxRetain(&place.context, device));
            NEED(cuCtxSetCurrent(place.context));
        } else {
#if CUDA_VERSION >= 13000
            NEED(cuCtxCreate(&place.context, nullptr, 0, device));
#else
            NEED(cuCtxCreate(&place.context, 0, device));
#endif
        }
        NEED(cuStreamCreate(&place.stream, CU_STREAM_NON_BLOCKING));
        NEED(cuMemAlloc(&place.out, 512));
        places.push_back(place);
    } else {
        fprintf(stderr, "contexts are made one by one: %zu after %zu\n", number, places.size());
        exit(2);
    }
    stream = places[number].stream;
    out = places[number].out;
    launch(1);
    must_have_launched();
    NEED(cuCtxSynchronize());
}

// One unit of work; answers how many things it was.
static long once()
{
    CUdeviceptr memory;
    if (kind == "kernels") {
        for (int i = 0; i < KERNELS_BETWEEN_WAITS; i++) launch((long)size);
        must_have_launched();
        NEED(cuStreamSynchronize(stream));
        return KERNELS_BETWEEN_WAITS;
    }
    if (kind == "plain-pair") {
        NEED(cuMemAlloc(&memory, size));
        NEED(cuMemFree(memory));
        return 1;
    }
    if (kind == "plain-batch") {
        for (auto &one : batch) NEED(cuMemAlloc(&one, size));
        for (auto &one : batch) NEED(cuMemFree(one));
        return batch.size();
    }
    if (kind == "async-0" || kind == "async-max") {
        NEED(cuMemAllocAsync(&memory, size, stream));
        NEED(cuMemFreeAsync(memory, stream));
        NEED(cuStreamSynchronize(stream));
        return 1;
    }
    for (int i = 0; i < BATCH; i++) { // async-max-loop
        NEED(cuMemAllocAsync(&memory, size, stream));
        NEED(cuMemFreeAsync(memory, stream));
    }
    NEED(cuStreamSynchronize(stream));
    return BATCH;
}

static void choose(const char *name, size_t value)
{
    static const char *const KNOWN[] = {"kernels", "plain-pair", "plain-batch", "async-0", "async-max", "async-max-loop"};
    bool known = false;
    for (auto one : KNOWN) known |= !strcmp(one, name);
    if (!known || !value) {
        fprintf(stderr, "no such work: %s %zu\n", name, value);
        exit(2);
    }
    kind = name;
    size = value;
    // What is tried is the loop, not the first block of a fresh pool or slab.
    cuuint64_t threshold = kind == "async-0" ? 0 : ~0ull;
    NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemPoolTrimTo(pool, 0));
    if (held) NEED(cuMemFree(held));
    held = 0;
    if (kind.rfind("plain", 0) == 0) NEED(cuMemAlloc(&held, size));
    batch.assign(size > (64u << 20) ? LARGE_BATCH : BATCH, 0);
}

static long calibrated(double us)
{
    long rounds = 1000;
    for (int tries = 0; tries < 8; tries++) {
        for (int i = 0; i < 2000; i++) launch(rounds); // clocks up
        NEED(cuStreamSynchronize(stream));
        cudaEvent_t begin, end;
        float ms = 0;
        cudaEventCreate(&begin), cudaEventCreate(&end);
        cudaEventRecord(begin, (cudaStream_t)stream);
        // One kernel of many times the rounds: what a kernel's start costs is not in it.
        launch(rounds * 200);
        cudaEventRecord(end, (cudaStream_t)stream);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        must_have_launched();
        double each_us = ms * 1000 / 200;
        rounds = (long)(rounds * us / each_us) + 1;
    }
    return rounds;
}

int main(int count, char **words)
{
    char line[256], name[64];
    double seconds, us;
    unsigned long value;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    use_place(0);
    NEED(cuDeviceGetDefaultMemPool(&pool, device));
    if (count > 1) { // this thread alone: the driver's and rota's own ones are free
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET(atoi(words[1]), &core);
        if (sched_setaffinity(0, sizeof core, &core)) return perror("sched_setaffinity"), 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "set %63s %lu", name, &value) == 2) {
            choose(name, value);
            printf("ready\n");
        } else if (sscanf(line, "context %lu", &value) == 1) {
            use_place(value);
            printf("ready\n");
        } else if (sscanf(line, "calibrate %lf", &us) == 1) {
            printf("%ld\n", calibrated(us));
        } else if (sscanf(line, "work %lf", &seconds) == 1) {
            int64_t begin = now();
            while (now() - begin < LEAD_IN_S * 1e9) once();
            long done = 0;
            int64_t end;
            begin = now();
            do {
                done += once();
                end = now();
            } while (end - begin < seconds * 1e9);
            printf("%ld %lld\n", done, (long long)(end - begin));
        } else if (!strncmp(line, "quit", 4)) {
            return 0;
        } else {
            fprintf(stderr, "cannot read: %s", line);
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
