// E22: what makes copies in beside copies out slower in a switch than in a plain measurement of both.
//
//   swap [GIB [TIMES]]
//
// As many bytes go out as come in, in handles: a handle comes in when one of the same size has gone out before it. Varied, one at a
// time and together: the size of handles and of copies, whether what comes in goes to the memory that was just read (as memory that is
// passed on does) or to other memory, whether the bytes are all the same or random, and whether what is read from the host was written
// by the GPU before (the halves of the host's memory change places each time) or by the CPU only.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "swap.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const size_t MIB = 1 << 20, STEP = 64 * MIB, PAGE = 4096;
static const int TOUCHING = 8; // threads

static uint64_t mixed(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9, word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

// Each thread a part of its own.
static void fill(char *place, size_t bytes, bool random)
{
    std::vector<std::thread> threads;
    for (int n = 0; n < TOUCHING; n++)
        threads.emplace_back([=] {
            uint64_t *words = (uint64_t *)place;
            size_t part = bytes / 8 / TOUCHING;
            for (size_t at = n * part; at < (n + 1) * part; at++) words[at] = random ? mixed(at) : 1;
        });
    for (std::thread &thread : threads) thread.join();
}

static char *host, *device;
static size_t bytes;
static cudaStream_t out, in;
static cudaEvent_t began, out_ended, in_began, in_ended;
static std::vector<cudaEvent_t> gone;

struct Rates { double all, out, in; }; // GB/s

static Rates swapped(size_t handle, size_t piece, bool in_place, int half, bool waits)
{
    char *to_host = host + half * bytes, *from_host = host + (1 - half) * bytes, *to_device = in_place ? device : device + bytes;
    NEED(cudaEventRecord(began, out));
    NEED(cudaStreamWaitEvent(in, began, 0));
    for (size_t at = 0, n = 0; at < bytes; at += handle, n++) {
        for (size_t more = 0; more < handle; more += piece)
            NEED(cudaMemcpyAsync(to_host + at + more, device + at + more, piece, cudaMemcpyDeviceToHost, out));
        NEED(cudaEventRecord(gone[n], out));
        if (waits) NEED(cudaStreamWaitEvent(in, gone[n], 0));
        if (!at) NEED(cudaEventRecord(in_began, in));
        for (size_t more = 0; more < handle; more += piece)
            NEED(cudaMemcpyAsync(to_device + at + more, from_host + at + more, piece, cudaMemcpyHostToDevice, in));
    }
    NEED(cudaEventRecord(out_ended, out));
    NEED(cudaEventRecord(in_ended, in));
    NEED(cudaDeviceSynchronize());
    float out_ms, in_ms, all_ms;
    NEED(cudaEventElapsedTime(&out_ms, began, out_ended));
    NEED(cudaEventElapsedTime(&in_ms, in_began, in_ended));
    NEED(cudaEventElapsedTime(&all_ms, began, in_ended));
    return {bytes / 1e6 / std::max(all_ms, out_ms), bytes / 1e6 / out_ms, bytes / 1e6 / in_ms};
}

int main(int given, char **arguments)
{
    bytes = (size_t)((given > 1 ? atof(arguments[1]) : 12) * 1024) / 1024 * 1024 * MIB;
    int times = given > 2 ? atoi(arguments[2]) : 5;
    if (!bytes || times < 1) return fprintf(stderr, "swap [GIB [TIMES]]\n"), 2;
    int file = memfd_create("swap", 0);
    if (file < 0 || ftruncate(file, 2 * bytes)) return perror("memfd"), 1;
    host = (char *)mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (host == MAP_FAILED) return perror("mmap"), 1;
    fill(host, 2 * bytes, false);
    for (size_t at = 0; at < 2 * bytes; at += STEP) NEED(cudaHostRegister(host + at, STEP, cudaHostRegisterDefault));
    NEED(cudaMalloc(&device, 2 * bytes));
    NEED(cudaMemset(device, 1, 2 * bytes));
    NEED(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&began, &out_ended, &in_began, &in_ended}) NEED(cudaEventCreate(event));
    gone.resize(bytes / (64 * MIB));
    for (cudaEvent_t &event : gone) NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    printf("%-7s %-8s %7s %6s %9s %-11s %7s %7s %7s\n", "bytes", "waits", "handle", "copy", "in place", "host halves", "all", "out", "in");
    for (bool random : {false, true}) {
        if (random) {
            fill(host, 2 * bytes, true);
            for (size_t at = 0; at < 2 * bytes; at += STEP) NEED(cudaMemcpy(device + at, host + at, STEP, cudaMemcpyHostToDevice));
        }
        for (bool waits : {false, true})
            for (size_t handle : {64, 256})
                for (size_t piece : {16, 64})
                    for (bool in_place : {false, true})
                        for (bool change : {false, true}) {
                            if (!waits && (handle == 64 || in_place)) continue;
                            std::vector<Rates> all;
                            for (int n = 0; n <= times; n++) all.push_back(swapped(handle * MIB, piece * MIB, in_place, change ? n % 2 : 0, waits));
                            std::sort(all.begin() + 1, all.end(), [](const Rates &a, const Rates &b) { return a.all < b.all; });
                            Rates usual = all[1 + times / 2];
                            printf("%-7s %-8s %7zu %6zu %9s %-11s %7.2f %7.2f %7.2f\n", random ? "random" : "same", waits ? "yes" : "no", handle, piece,
                                   in_place ? "yes" : "no", change ? "change" : "stay", usual.all, usual.out, usual.in);
                            fflush(stdout);
                        }
    }
    _exit(0);
}
