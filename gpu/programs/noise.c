// Noise for the driver: makes calls that hold its locks, over and over, until a time is up.
//
//   noise contexts SECONDS   processes that make a context and exit, one after the other
//   noise vmm SECONDS        create, map, unmap and release 20 MiB
//   noise pinning SECONDS    register and unregister 1 GiB of host memory
//   noise asking SECONDS     create and release 2 MiB, 50 times a second: no noise, but somebody whom it keeps waiting
//
// Says "ready" when it begins. Ends early by SIGTERM. Prints how often it went round, and when the longest round began and ended, in
// seconds of the monotonic clock.
#define _GNU_SOURCE
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        const char *name = 0;
        cuGetErrorName(result, &name);
        fprintf(stderr, "%s: %s\n", call, name ? name : "unknown error");
        _exit(1);
    }
}
#define CHECK(call) check((call), #call)

static CUdevice make_context(void)
{
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return device;
}

static void contexts_once(void)
{
    pid_t child = fork();
    if (child == 0) {
        make_context();
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "a child failed: status %d\n", status);
        _exit(1);
    }
}

static CUmemAllocationProp of_device(CUdevice device)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static void vmm_once(CUdevice device)
{
    const size_t size = 20u << 20;
    CUmemAllocationProp properties = of_device(device);
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cuMemCreate(&handle, size, &properties, 0));
    CHECK(cuMemMap(address, size, 0, handle, 0));
    CHECK(cuMemSetAccess(address, size, &access, 1));
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(address, size));
}

static void pinning_once(void)
{
    static void *memory;
    const size_t size = (size_t)1 << 30;
    if (!memory) {
        memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        madvise(memory, size, MADV_HUGEPAGE);
        memset(memory, 1, size);
    }
    CHECK(cuMemHostRegister(memory, size, 0));
    CHECK(cuMemHostUnregister(memory));
}

static void asking_once(CUdevice device)
{
    CUmemAllocationProp properties = of_device(device);
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, (size_t)2 << 20, &properties, 0));
    CHECK(cuMemRelease(handle));
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: noise contexts|vmm|pinning|asking SECONDS\n");
        return 2;
    }
    const char *kind = arguments[1];
    double until = seconds() + atof(arguments[2]), longest[2] = {0, 0};
    long rounds = 0;
    CUdevice device = 0;
    if (strcmp(kind, "contexts") != 0)
        device = make_context();
    signal(SIGTERM, end);
    printf("ready\n");
    fflush(stdout);
    while (!ended && seconds() < until) {
        double begun = seconds(), done;
        if (!strcmp(kind, "contexts"))
            contexts_once();
        else if (!strcmp(kind, "vmm"))
            vmm_once(device);
        else if (!strcmp(kind, "pinning"))
            pinning_once();
        else if (!strcmp(kind, "asking"))
            asking_once(device);
        else
            return 2;
        done = seconds();
        if (done - begun > longest[1] - longest[0]) {
            longest[0] = begun;
            longest[1] = done;
        }
        rounds++;
        if (!strcmp(kind, "asking"))
            usleep(20000);
    }
    printf("%ld %.6f %.6f\n", rounds, longest[0], longest[1]);
    return 0;
}
