// E19: which way of copying from pinned memory goes on while the driver clears memory that was created or released: by the usual
// call, by calls that may use another engine, by kernels, by both. Prints GB/s in alone, and both ways at once, undisturbed and
// beside a thread that creates and releases memory at the pace of a switch, one handle of 256 MiB each 5 ms; of the usual call also beside
// one that only creates, or only releases, one each millisecond.
#include <cuda.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { CUresult need = (call); if (need) { const char *name = "?"; cuGetErrorName(need, &name); printf("FAIL  %d %s: %s\n", __LINE__, #call, name); _exit(1); } } while (0)

static const size_t HANDLE = 256 << 20, PIECE = 64 << 20, HANDLES = 8;
static CUcontext context;
static std::atomic<bool> ready;

static double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static CUmemGenericAllocationHandle created(size_t bytes)
{
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, bytes, &what, 0));
    return handle;
}

static void mapped(CUdeviceptr at, CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    NEED(cuMemMap(at, bytes, 0, handle, 0));
    NEED(cuMemSetAccess(at, bytes, &access, 1));
}

static CUdeviceptr reserved(size_t bytes)
{
    CUdeviceptr at;
    NEED(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

// Creates and releases memory, or does one of both only, until told to stop; answers how often.
static long disturb(const std::string &kind, std::atomic<bool> &stop)
{
    const size_t MANY = 160;
    NEED(cuCtxSetCurrent(context));
    if (kind == "none") return 0;
    std::vector<CUmemGenericAllocationHandle> held;
    if (kind == "release") while (held.size() < MANY) held.push_back(created(HANDLE));
    if (kind == "release") usleep(300000);
    ready = true;
    long done = 0;
    for (; !stop; done++) {
        usleep(kind == "both" ? 5000 : 1000);
        if (kind == "both") {
            NEED(cuMemRelease(created(HANDLE)));
        } else if (kind == "create") {
            if (held.size() == MANY) break;
            held.push_back(created(HANDLE));
        } else {
            if (held.empty()) break;
            NEED(cuMemRelease(held.back()));
            held.pop_back();
        }
    }
    while (!stop) usleep(1000);
    for (auto one : held) NEED(cuMemRelease(one));
    return done;
}

static char *pinned(size_t bytes)
{
    int file = memfd_create("lanes", 0);
    if (file < 0 || ftruncate(file, bytes)) perror("memfd"), _exit(1);
    char *place = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    std::vector<std::thread> threads;
    for (int n = 0; n < 8; n++)
        threads.emplace_back([=] { for (size_t at = n * 4096; at < bytes; at += 8 * 4096) ((volatile char *)place)[at] = 1; });
    for (std::thread &thread : threads) thread.join();
    for (size_t at = 0; at < bytes; at += PIECE) NEED(cuMemHostRegister(place + at, PIECE, 0));
    return place;
}


static const size_t UNROLL = 8;

// Copies by the processors: each thread keeps UNROLL reads of 16 bytes under way.
__global__ void __launch_bounds__(512) fetch(uint4 *__restrict__ to, const uint4 *__restrict__ from, size_t count)
{
    size_t step = (size_t)gridDim.x * blockDim.x, at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + (UNROLL - 1) * step < count; at += UNROLL * step) {
        uint4 held[UNROLL];
#pragma unroll
        for (size_t n = 0; n < UNROLL; n++) held[n] = __ldcs(from + at + n * step);
#pragma unroll
        for (size_t n = 0; n < UNROLL; n++) to[at + n * step] = held[n];
    }
    for (; at < count; at += step) to[at] = from[at];
}

static CUstream out, in, second;
static int blocks;

static void copy_in(const std::string &way, CUdeviceptr to, char *from, size_t number)
{
    CUdeviceptr alias;
    NEED(cuMemHostGetDevicePointer(&alias, from, 0));
    if (way == "HtoD") NEED(cuMemcpyHtoDAsync(to, from, PIECE, in));
    else if (way == "DtoD") NEED(cuMemcpyDtoDAsync(to, alias, PIECE, in));
    else if (way == "unified") NEED(cuMemcpyAsync(to, (CUdeviceptr)from, PIECE, in));
    else if (way == "peer") NEED(cuMemcpyPeerAsync(to, context, alias, context, PIECE, in));
    else if (way == "2D") {
        CUDA_MEMCPY2D what = {};
        what.srcMemoryType = what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        what.srcDevice = alias, what.dstDevice = to;
        what.srcPitch = what.dstPitch = what.WidthInBytes = 1 << 20;
        what.Height = PIECE >> 20;
        NEED(cuMemcpy2DAsync(&what, in));
    } else if (way == "two") NEED(cuMemcpyHtoDAsync(to, from, PIECE, number % 2 ? in : second));
    else if (way == "kernel" || (way == "mixed" && number % 2)) fetch<<<blocks, 512, 0, (cudaStream_t)second>>>((uint4 *)to, (const uint4 *)alias, PIECE / 16);
    else if (way == "mixed") NEED(cuMemcpyHtoDAsync(to, from, PIECE, in));
    else printf("FAIL  no such way: %s\n", way.c_str()), _exit(2);
}

int main()
{
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    char *host = pinned(2 * HANDLES * HANDLE);
    const size_t bytes = HANDLES * HANDLE;
    CUdeviceptr out_at = reserved(bytes), in_at = reserved(bytes);
    for (size_t n = 0; n < HANDLES; n++) {
        mapped(out_at + n * HANDLE, created(HANDLE), HANDLE);
        mapped(in_at + n * HANDLE, created(HANDLE), HANDLE);
    }
    for (CUstream *stream : {&out, &in, &second}) NEED(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    const struct { const char *way; int blocks; } WAYS[] = {{"HtoD", 0}, {"DtoD", 0}, {"unified", 0}, {"peer", 0}, {"2D", 0}, {"two", 0},
        {"kernel", 8}, {"kernel", 16}, {"kernel", 32}, {"kernel", 64}, {"kernel", 132}, {"mixed", 16}, {"mixed", 64}};
    for (auto &one : WAYS) {
        blocks = one.blocks;
        printf("FACT  %-8s %3d:", one.way, blocks);
        for (std::string kind : std::vector<std::string>{"none", "both", "create", "release"}) {
            if (strcmp(one.way, "HtoD") && (kind == "create" || kind == "release")) continue;
            for (bool both : {false, true}) {
                std::atomic<bool> stop{false};
                long done = 0;
                ready = kind == "none";
                std::thread other([&] { done = disturb(kind, stop); });
                while (!ready) usleep(1000);
                double in_s = 0, all_s = 0;
                for (int time = 0; time < 4; time++) { // the first is for warming up
                    double began = now_s();
                    for (size_t at = 0; at < bytes; at += PIECE) {
                        if (both) NEED(cuMemcpyDtoHAsync(host + at, out_at + at, PIECE, out));
                        copy_in(one.way, in_at + at, host + bytes + at, at / PIECE);
                    }
                    NEED(cuStreamSynchronize(in));
                    NEED(cuStreamSynchronize(second));
                    double in_took = now_s() - began;
                    NEED(cuStreamSynchronize(out));
                    if (time) in_s += in_took, all_s += now_s() - began;
                }
                stop = true;
                other.join();
                if (both) printf(", with out: in %.2f, until both ended %.2f", 3.0 * bytes / in_s / 1e9, 3.0 * bytes / all_s / 1e9);
                else printf("   %s: alone in %.2f", kind.c_str(), 3.0 * bytes / in_s / 1e9);
                if (done) printf(" (%ld times)", done);
                fflush(stdout);
            }
        }
        printf("\n");
    }
    fflush(stdout);
    _exit(0);
}
