// Noise for the driver: makes calls that hold its locks, over and over, until a time is up.
//
//   noise contexts SECONDS   processes that make a context and exit, one after the other
//   noise vmm SECONDS        create, map, unmap and release 20 MiB
//   noise pinning SECONDS    register and unregister 1 GiB of host memory
//
// Prints how often it went round.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static void vmm_once(CUdevice device)
{
    const size_t size = 20u << 20;
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    memset(&properties, 0, sizeof properties);
    memset(&access, 0, sizeof access);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
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

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: noise contexts|vmm|pinning SECONDS\n");
        return 2;
    }
    const char *kind = arguments[1];
    double end = seconds() + atof(arguments[2]);
    long rounds = 0;
    CUdevice device = 0;
    if (strcmp(kind, "contexts") != 0)
        device = make_context();
    while (seconds() < end) {
        if (!strcmp(kind, "contexts"))
            contexts_once();
        else if (!strcmp(kind, "vmm"))
            vmm_once(device);
        else if (!strcmp(kind, "pinning"))
            pinning_once();
        else
            return 2;
        rounds++;
    }
    printf("%ld\n", rounds);
    return 0;
}
