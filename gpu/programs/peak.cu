// How fast pinned memory can be copied here: out, in, and both at once, as a daemon's arena would be at its best.
//
//   peak [GIB [TIMES [OUT_MIB [IN_MIB]]]]
//
// The memory is a memfd, touched by several threads and registered in steps of 64 MiB; copies are of 64 MiB, or of so many MiB out
// and so many in (divisors of 64), in a stream for each way. Prints one line of JSON with the seconds of each measurement, and the
// bytes that each moved in one way; of both at once also the seconds after which each of the ways had ended.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

int main(int given, char **arguments)
{
    double gib = given > 1 ? atof(arguments[1]) : 4;
    int times = given > 2 ? atoi(arguments[2]) : 10;
    size_t out_step = given > 3 ? (size_t)atoi(arguments[3]) << 20 : STEP, in_step = given > 4 ? (size_t)atoi(arguments[4]) << 20 : STEP;
    // Each way has half of the memory, so that both at once touch no byte twice.
    size_t bytes = (size_t)(gib * (1 << 30)) / 2 / STEP * STEP;
    if (!bytes || times < 1 || !out_step || !in_step || STEP % out_step || STEP % in_step)
        return fprintf(stderr, "peak [GIB [TIMES [OUT_MIB [IN_MIB]]]]\n"), 2;
    char *host = pinned(2 * bytes), *device;
    NEED(cudaMalloc(&device, 2 * bytes));
    NEED(cudaMemset(device, 1, 2 * bytes));
    cudaStream_t out, in;
    NEED(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking));
    cudaEvent_t out_began, out_ended, in_began, in_ended;
    for (cudaEvent_t *event : {&out_began, &out_ended, &in_began, &in_ended}) NEED(cudaEventCreate(event));
    NEED(cudaDeviceSynchronize());

    auto seconds = [&](bool goes_out, bool comes_in) {
        double began = now_s();
        NEED(cudaEventRecord(out_began, out));
        NEED(cudaEventRecord(in_began, in));
        for (size_t at = 0; at < bytes; at += STEP) {
            for (size_t more = 0; goes_out && more < STEP; more += out_step)
                NEED(cudaMemcpyAsync(host + at + more, device + at + more, out_step, cudaMemcpyDeviceToHost, out));
            for (size_t more = 0; comes_in && more < STEP; more += in_step)
                NEED(cudaMemcpyAsync(device + bytes + at + more, host + bytes + at + more, in_step, cudaMemcpyHostToDevice, in));
        }
        NEED(cudaEventRecord(out_ended, out));
        NEED(cudaEventRecord(in_ended, in));
        NEED(cudaStreamSynchronize(out));
        NEED(cudaStreamSynchronize(in));
        return now_s() - began;
    };
    struct { const char *name; bool out, in; } ways[] = {{"out", true, false}, {"in", false, true}, {"both", true, true}};
    std::vector<float> out_ms, in_ms;
    printf("{\"bytes\": %zu", bytes);
    for (auto &way : ways) {
        seconds(way.out, way.in);
        printf(", \"%s_s\": [", way.name);
        for (int i = 0; i < times; i++) {
            printf("%s%.6f", i ? ", " : "", seconds(way.out, way.in));
            float out_took, in_took;
            NEED(cudaEventElapsedTime(&out_took, out_began, out_ended));
            NEED(cudaEventElapsedTime(&in_took, in_began, in_ended));
            if (way.out && way.in) out_ms.push_back(out_took), in_ms.push_back(in_took);
        }
        printf("]");
    }
    for (auto &lane : {std::make_pair("both_out_s", &out_ms), std::make_pair("both_in_s", &in_ms)}) {
        printf(", \"%s\": [", lane.first);
        for (size_t i = 0; i < lane.second->size(); i++) printf("%s%.6f", i ? ", " : "", (*lane.second)[i] / 1e3);
        printf("]");
    }
    printf("}\n");
    fflush(stdout);
    _exit(0);
}
