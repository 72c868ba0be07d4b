// How fast pinned memory can be copied here: out, in, and both at once, as a daemon's arena would be at its best.
//
//   peak [GIB [TIMES [OUT_MIB:IN_MIB ...]]]
//   peak GIB asked
//
// The memory is a memfd, touched by several threads and registered in steps of 64 MiB; copies are of 64 MiB, in a stream for each
// way; both at once is measured for each pair of sizes given (divisors of 64). Prints one line of JSON with the seconds of each
// measurement, and the bytes that each moved in one way; of both at once also the seconds after which each of the ways had ended.
// The second form says so when it is ready, and for each pair of sizes that it is told it measures both at once and prints the GB/s
// each way.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "peak.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const size_t STEP = 64 << 20;
static const size_t PAGE = 4096;
static const int TOUCHING = 8; // threads

static double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static char *pinned(size_t bytes)
{
    int file = memfd_create("peak", 0);
    if (file < 0 || ftruncate(file, bytes)) perror("memfd"), exit(1);
    char *place = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) perror("mmap"), exit(1);
    std::vector<std::thread> threads;
    for (int n = 0; n < TOUCHING; n++)
        threads.emplace_back([=] {
            for (size_t at = n * PAGE; at < bytes; at += TOUCHING * PAGE) ((volatile char *)place)[at] = 1;
        });
    for (std::thread &thread : threads) thread.join();
    for (size_t at = 0; at < bytes; at += STEP) NEED(cudaHostRegister(place + at, STEP, cudaHostRegisterDefault));
    return place;
}

struct Sizes {
    int out_mib, in_mib;

    bool read(const char *words)
    {
        return sscanf(words, "%d:%d", &out_mib, &in_mib) == 2 && out_mib > 0 && in_mib > 0 && 64 % out_mib == 0 && 64 % in_mib == 0;
    }
};

static int usage()
{
    fprintf(stderr, "peak [GIB [TIMES [OUT_MIB:IN_MIB ...]]]\npeak GIB asked\n");
    return 2;
}

int main(int given, char **arguments)
{
    double gib = given > 1 ? atof(arguments[1]) : 4;
    bool is_asked = given > 2 && !strcmp(arguments[2], "asked");
    int times = is_asked ? 1 : given > 2 ? atoi(arguments[2]) : 10;
    std::vector<Sizes> sizes;
    for (int n = 3; n < given; n++) {
        Sizes pair;
        if (!pair.read(arguments[n])) return usage();
        sizes.push_back(pair);
    }
    if (sizes.empty()) sizes.push_back({64, 64});
    // Each way has half of the memory, so that both at once touch no byte twice.
    size_t bytes = (size_t)(gib * (1 << 30)) / 2 / STEP * STEP;
    if (!bytes || times < 1) return usage();
    char *host = pinned(2 * bytes), *device;
    NEED(cudaMalloc(&device, 2 * bytes));
    NEED(cudaMemset(device, 1, 2 * bytes));
    cudaStream_t out, in;
    NEED(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking));
    cudaEvent_t out_began, out_ended, in_began, in_ended;
    for (cudaEvent_t *event : {&out_began, &out_ended, &in_began, &in_ended}) NEED(cudaEventCreate(event));
    NEED(cudaDeviceSynchronize());

    // A size of 0: not that way.
    auto seconds = [&](size_t out_step, size_t in_step) {
        double began = now_s();
        NEED(cudaEventRecord(out_began, out));
        NEED(cudaEventRecord(in_began, in));
        for (size_t at = 0; at < bytes; at += STEP) {
            for (size_t more = 0; out_step && more < STEP; more += out_step)
                NEED(cudaMemcpyAsync(host + at + more, device + at + more, out_step, cudaMemcpyDeviceToHost, out));
            for (size_t more = 0; in_step && more < STEP; more += in_step)
                NEED(cudaMemcpyAsync(device + bytes + at + more, host + bytes + at + more, in_step, cudaMemcpyHostToDevice, in));
        }
        NEED(cudaEventRecord(out_ended, out));
        NEED(cudaEventRecord(in_ended, in));
        NEED(cudaStreamSynchronize(out));
        NEED(cudaStreamSynchronize(in));
        return now_s() - began;
    };
    auto once = [&](const Sizes &pair) { return seconds((size_t)pair.out_mib << 20, (size_t)pair.in_mib << 20); };
    if (is_asked) {
        once({64, 64});
        printf("ready\n");
        fflush(stdout);
        Sizes pair;
        for (char line[64]; fgets(line, sizeof line, stdin) && pair.read(line); fflush(stdout)) printf("%.3f\n", bytes / 1e9 / once(pair));
        _exit(0);
    }
    auto print = [&](const char *name, const std::vector<double> &values) {
        printf(", \"%s\": [", name);
        for (size_t i = 0; i < values.size(); i++) printf("%s%.6f", i ? ", " : "", values[i]);
        printf("]");
    };
    // The first time is left out.
    auto measured = [&](size_t out_step, size_t in_step, std::vector<double> *out_s, std::vector<double> *in_s) {
        std::vector<double> all;
        seconds(out_step, in_step);
        for (int i = 0; i < times; i++) {
            all.push_back(seconds(out_step, in_step));
            float out_ms, in_ms;
            NEED(cudaEventElapsedTime(&out_ms, out_began, out_ended));
            NEED(cudaEventElapsedTime(&in_ms, in_began, in_ended));
            if (out_s) out_s->push_back(out_ms / 1e3);
            if (in_s) in_s->push_back(in_ms / 1e3);
        }
        return all;
    };
    printf("{\"bytes\": %zu", bytes);
    print("out_s", measured(STEP, 0, nullptr, nullptr));
    print("in_s", measured(0, STEP, nullptr, nullptr));
    printf(", \"both\": [");
    for (size_t n = 0; n < sizes.size(); n++) {
        std::vector<double> out_s, in_s, all = measured((size_t)sizes[n].out_mib << 20, (size_t)sizes[n].in_mib << 20, &out_s, &in_s);
        printf("%s{\"out_mib\": %d, \"in_mib\": %d", n ? ", " : "", sizes[n].out_mib, sizes[n].in_mib);
        print("s", all);
        print("out_s", out_s);
        print("in_s", in_s);
        printf("}");
    }
    printf("]");
    printf("}\n");
    fflush(stdout);
    _exit(0);
}
