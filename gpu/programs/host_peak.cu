// How fast a kernel that rewrites every word can be in the host's memory, mapped at addresses of the device.
//
//   host_peak [GIB [TIMES]]
//
// The memory is of HOST_NUMA, on the node that is near to the GPU, in handles of 256 MiB in a row, as rota makes it. The kernel
// reads and writes every word once, as a step of turns.cu does. Prints one line of JSON: the bytes, and the seconds of each time.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <time.h>

#define NEED(call) do { int need = (int)(call); if (need) { fprintf(stderr, "host_peak.cu:%d %s: %d\n", __LINE__, #call, need); exit(1); } } while (0)

static const size_t HANDLE = 256ull << 20;
static const int THREADS = 256, EACH = 8, BLOCKS_EACH = 4; // as in turns.cu

__global__ void __launch_bounds__(THREADS, BLOCKS_EACH) rewrite(unsigned long long *words, size_t chunks)
{
    for (size_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        unsigned long long *at = words + chunk * THREADS * EACH + threadIdx.x, x[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] = at[i * THREADS];
#pragma unroll
        for (int i = 0; i < EACH; i++) at[i * THREADS] = x[i] * 0xd1342543de82ef95ull + 1;
    }
}

static double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int given, char **arguments)
{
    double gib = given > 1 ? atof(arguments[1]) : 4;
    int times = given > 2 ? atoi(arguments[2]) : 10;
    size_t handles = (size_t)(gib * (1 << 30) / HANDLE + 0.5), bytes = handles * HANDLE;
    if (!handles || times < 1) return fprintf(stderr, "host_peak [GIB [TIMES]]\n"), 2;
    NEED(cudaFree(0));
    int node = 0, units;
    if (cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) || node < 0) node = 0;
    NEED(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0));
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    wanted.location.id = node;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr at;
    NEED(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    double began = now_s();
    for (size_t i = 0; i < handles; i++) {
        CUmemGenericAllocationHandle handle;
        NEED(cuMemCreate(&handle, HANDLE, &wanted, 0));
        NEED(cuMemMap(at + i * HANDLE, HANDLE, 0, handle, 0));
    }
    NEED(cuMemSetAccess(at, bytes, &access, 1));
    double made = now_s() - began;
    printf("{\"bytes\": %zu, \"node\": %d, \"made_s\": %.3f, \"rewrite_s\": [", bytes, node, made);
    for (int i = -1; i < times; i++) {
        began = now_s();
        rewrite<<<units * BLOCKS_EACH, THREADS>>>((unsigned long long *)at, bytes / 8 / THREADS / EACH);
        NEED(cudaGetLastError());
        NEED(cudaDeviceSynchronize());
        if (i >= 0) printf("%s%.6f", i ? ", " : "", now_s() - began);
    }
    printf("]}\n");
    fflush(stdout);
    _Exit(0);
}
