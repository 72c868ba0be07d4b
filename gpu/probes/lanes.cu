// E18: what slows copies from pinned memory down: memory being created, mapped, imported or released meanwhile, by the same process or
// by another one, or that the memory copied to is fresh.
//
//   lanes measure KIND     rates of copies in, and of copies both ways at once, while a thread does KIND all the time
//   lanes disturb KIND S   does KIND for so many seconds, in a process of its own
// Kinds: none, create (and release), map (and unmap), createmap (all four), import (and map, unmap), big (creates and releases 4 GiB),
// and for `measure` also fresh: each handle is created and mapped just before it is copied to.
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

// Does it until told to stop; answers how often.
static long disturb(const std::string &kind, std::atomic<bool> &stop)
{
    NEED(cuCtxSetCurrent(context));
    if (kind == "none" || kind == "fresh") return 0;
    size_t bytes = kind == "big" ? HANDLE * 16 : HANDLE;
    CUdeviceptr at = reserved(bytes);
    CUmemGenericAllocationHandle handle = created(bytes);
    int file = -1;
    NEED(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    long done = 0;
    for (; !stop; done++) {
        if (kind == "create" || kind == "big") {
            NEED(cuMemRelease(created(bytes)));
        } else if (kind == "map") {
            mapped(at, handle, bytes);
            NEED(cuMemUnmap(at, bytes));
        } else if (kind == "createmap") {
            CUmemGenericAllocationHandle one = created(bytes);
            mapped(at, one, bytes);
            NEED(cuMemUnmap(at, bytes));
            NEED(cuMemRelease(one));
        } else if (kind == "import") {
            CUmemGenericAllocationHandle one;
            NEED(cuMemImportFromShareableHandle(&one, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
            mapped(at, one, bytes);
            NEED(cuMemUnmap(at, bytes));
            NEED(cuMemRelease(one));
        } else {
            printf("FAIL  no such kind: %s\n", kind.c_str());
            _exit(2);
        }
    }
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

int main(int count, char **words)
{
    if (count < 3) return printf("usage: lanes measure KIND | lanes disturb KIND SECONDS\n"), 2;
    std::string mode = words[1], kind = words[2];
    std::atomic<bool> stop{false};
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    if (mode == "disturb") {
        double seconds = count > 3 ? atof(words[3]) : 1;
        std::thread timer([&] { usleep(seconds * 1e6); stop = true; });
        long done = disturb(kind, stop);
        timer.join();
        printf("      (the other process: %s %.0f times a second)\n", kind.c_str(), done / seconds);
        return 0;
    }
    char *host = pinned(2 * HANDLES * HANDLE);
    CUdeviceptr out_at = reserved(HANDLES * HANDLE), in_at = reserved(HANDLES * HANDLE);
    for (size_t n = 0; n < HANDLES; n++) {
        mapped(out_at + n * HANDLE, created(HANDLE), HANDLE);
        if (kind != "fresh") mapped(in_at + n * HANDLE, created(HANDLE), HANDLE);
    }
    CUstream out, in;
    NEED(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    CUevent in_ended[HANDLES], out_ended;
    for (CUevent &event : in_ended) NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&out_ended, CU_EVENT_DISABLE_TIMING));
    printf("FACT  %-10s", kind.c_str());
    for (bool both : {false, true}) {
        long done = 0;
        stop = false;
        std::thread other([&] { done = disturb(kind, stop); });
        double began = 0, in_s = 0, out_s = 0, spent = now_s();
        for (int time = 0; time < 11; time++) { // the first is for warming up
            CUmemGenericAllocationHandle fresh[HANDLES];
            began = now_s();
            if (both)
                for (size_t at = 0; at < HANDLES * HANDLE; at += PIECE) NEED(cuMemcpyDtoHAsync(host + at, out_at + at, PIECE, out));
            if (both) NEED(cuEventRecord(out_ended, out));
            double out_took = 0;
            auto look = [&] { if (both && !out_took && cuEventQuery(out_ended) == CUDA_SUCCESS) out_took = now_s() - began; };
            for (size_t n = 0; n < HANDLES; n++) {
                if (kind == "fresh") {
                    while (n >= 2 && cuEventQuery(in_ended[n - 2]) != CUDA_SUCCESS) look();
                    fresh[n] = created(HANDLE);
                    mapped(in_at + n * HANDLE, fresh[n], HANDLE);
                }
                for (size_t at = n * HANDLE; at < (n + 1) * HANDLE; at += PIECE)
                    NEED(cuMemcpyHtoDAsync(in_at + at, host + HANDLES * HANDLE + at, PIECE, in));
                NEED(cuEventRecord(in_ended[n], in));
            }
            while (cuEventQuery(in_ended[HANDLES - 1]) != CUDA_SUCCESS) look();
            double in_took = now_s() - began;
            while (both && !out_took) look();
            if (time) in_s += in_took, out_s += out_took;
            if (kind == "fresh")
                for (size_t n = 0; n < HANDLES; n++) {
                    NEED(cuMemUnmap(in_at + n * HANDLE, HANDLE));
                    NEED(cuMemRelease(fresh[n]));
                }
        }
        spent = now_s() - spent;
        stop = true;
        other.join();
        double bytes = 10.0 * HANDLES * HANDLE / 1e9;
        if (both) printf("   both: in %.2f, out %.2f GB/s", bytes / in_s, bytes / out_s);
        else printf(" alone: in %.2f GB/s", bytes / in_s);
        if (done) printf(" (%.0f times a second)", done / spent);
        fflush(stdout);
    }
    printf("\n");
    fflush(stdout);
    _exit(0);
}
