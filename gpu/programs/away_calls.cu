// What each driver call does while there is no memory under its address: one case per process, named on the command line.
//
// An address is reserved and mapped, a stream is held by a flag in host memory, and the memory is unmapped. The call is
// made. Then new memory is mapped at the same address, the stream is let go, and where the call should have filled the
// memory its bytes are checked. Prints "call NAME then NAME data right|wrong|-". A case may hang or crash: that is a result.
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

static const size_t BYTES = 64 << 20;
static const unsigned char FILL = 0x5a;

static const char *name(CUresult result) {
    const char *text = nullptr;
    cuGetErrorName(result, &text);
    return text ? text : "?";
}
#define NEED(call) do { CUresult need = (call); if (need) { fprintf(stderr, "%s: %s\n", #call, name(need)); exit(9); } } while (0)

__global__ void fill(unsigned *words, size_t count, unsigned value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) words[i] = value;
}

static CUcontext context;
static CUdeviceptr away, other, flag_address;
static CUmemGenericAllocationHandle handle;
static CUmemAllocationProp wanted;
static unsigned char *pinned, *pageable;
static volatile unsigned *flag;
static CUstream stream;
static CUgraph graph;
static CUgraphExec instantiated;
static CUgraphNode copy_node;

static void map_memory() {
    CUmemAccessDesc access = {};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    NEED(cuMemCreate(&handle, BYTES, &wanted, 0));
    NEED(cuMemMap(away, BYTES, 0, handle, 0));
    NEED(cuMemSetAccess(away, BYTES, &access, 1));
}

static CUDA_MEMCPY3D rows(size_t width, size_t height) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = away;
    copy.WidthInBytes = copy.srcPitch = copy.dstPitch = width;
    copy.Height = copy.srcHeight = copy.dstHeight = height;
    copy.Depth = 1;
    return copy;
}

static CUDA_MEMCPY2D plane(bool unified) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.srcDevice = (CUdeviceptr)pinned;
    copy.dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = away;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 4096;
    copy.Height = BYTES / 4096;
    return copy;
}

// A graph that fills half of the memory by a copy and half by a memset.
static void make_graph() {
    CUDA_MEMCPY3D copy = rows(BYTES / 2, 1);
    CUDA_MEMSET_NODE_PARAMS set = {};
    CUgraphNode set_node;
    set.dst = away + BYTES / 2;
    set.value = FILL;
    set.elementSize = 1;
    set.width = BYTES / 2;
    set.height = 1;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemcpyNode(&copy_node, graph, nullptr, 0, &copy, context));
    NEED(cuGraphAddMemsetNode(&set_node, graph, nullptr, 0, &set, context));
    NEED(cuGraphInstantiate(&instantiated, graph, 0));
}

struct Case {
    bool fills; // The call, once it is through, has filled the memory.
    std::function<CUresult()> call;
};

static std::map<std::string, Case> cases() {
    return {
        {"cuMemcpyHtoDAsync", {true, [] { return cuMemcpyHtoDAsync(away, pinned, BYTES, stream); }}},
        {"cuMemcpyHtoDAsync-pageable", {false, [] { return cuMemcpyHtoDAsync(away, pageable, 32768, stream); }}},
        {"cuMemcpyHtoD", {false, [] { return cuMemcpyHtoD(away, pageable, 32768); }}},
        {"cuMemcpyDtoHAsync", {false, [] { return cuMemcpyDtoHAsync(pinned, away, BYTES, stream); }}},
        {"cuMemcpyDtoDAsync-from", {false, [] { return cuMemcpyDtoDAsync(other, away, BYTES, stream); }}},
        {"cuMemcpyDtoDAsync-to", {true, [] { return cuMemcpyDtoDAsync(away, other, BYTES, stream); }}},
        {"cuMemcpyAsync-to", {true, [] { return cuMemcpyAsync(away, (CUdeviceptr)pinned, BYTES, stream); }}},
        {"cuMemcpyAsync-from", {false, [] { return cuMemcpyAsync((CUdeviceptr)pinned, away, BYTES, stream); }}},
        {"cuMemcpy2DAsync", {true, [] { auto copy = plane(false); return cuMemcpy2DAsync(&copy, stream); }}},
        {"cuMemcpy2DAsync-unified", {true, [] { auto copy = plane(true); return cuMemcpy2DAsync(&copy, stream); }}},
        {"cuMemcpy3DAsync", {true, [] { auto copy = rows(4096, BYTES / 4096); return cuMemcpy3DAsync(&copy, stream); }}},
        {"cuMemcpyPeerAsync", {true, [] { return cuMemcpyPeerAsync(away, context, other, context, BYTES, stream); }}},
        {"cuMemcpyBatchAsync", {true, [] {
            CUdeviceptr to = away, from = (CUdeviceptr)pinned;
            size_t bytes = BYTES, first = 0;
            CUmemcpyAttributes attributes = {};
            attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            return cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream);
        }}},
        {"cuMemsetD8Async", {true, [] { return cuMemsetD8Async(away, FILL, BYTES, stream); }}},
        {"cuMemsetD32Async", {true, [] { return cuMemsetD32Async(away, 0x5a5a5a5a, BYTES / 4, stream); }}},
        {"cuMemsetD2D8Async", {true, [] { return cuMemsetD2D8Async(away, 4096, FILL, 4096, BYTES / 4096, stream); }}},
        {"kernel-launch", {true, [] {
            fill<<<64, 256, 0, (cudaStream_t)stream>>>((unsigned *)away, BYTES / 4, 0x5a5a5a5a);
            return (CUresult)cudaGetLastError();
        }}},
        {"cuGraphLaunch", {true, [] { return cuGraphLaunch(instantiated, stream); }}},
        {"cuGraphInstantiate", {false, [] { CUgraphExec again; return cuGraphInstantiate(&again, graph, 0); }}},
        {"cuGraphExecMemcpyNodeSetParams", {false, [] {
            auto copy = rows(BYTES / 2, 1);
            return cuGraphExecMemcpyNodeSetParams(instantiated, copy_node, &copy, context);
        }}},
        {"cuStreamWriteValue32", {false, [] { return cuStreamWriteValue32(stream, away, 7, 0); }}},
        {"cuStreamWaitValue32", {false, [] { return cuStreamWaitValue32(stream, away, 0, CU_STREAM_WAIT_VALUE_GEQ); }}},
        {"cuPointerGetAttribute", {false, [] { unsigned type; return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, away); }}},
        {"cuMemGetAddressRange", {false, [] { CUdeviceptr base; size_t bytes; return cuMemGetAddressRange(&base, &bytes, away + 4096); }}},
        {"cuTexObjectCreate", {false, [] {
            CUDA_RESOURCE_DESC resource = {};
            CUDA_TEXTURE_DESC texture = {};
            CUtexObject object;
            resource.resType = CU_RESOURCE_TYPE_LINEAR;
            resource.res.linear.devPtr = away;
            resource.res.linear.format = CU_AD_FORMAT_FLOAT;
            resource.res.linear.numChannels = 1;
            resource.res.linear.sizeInBytes = 1 << 20;
            return cuTexObjectCreate(&object, &resource, &texture, nullptr);
        }}},
    };
}

int main(int count, char **words) {
    auto all = cases();
    if (count < 2) {
        for (auto &entry : all) printf("%s\n", entry.first.c_str());
        return 0;
    }
    auto found = all.find(words[1]);
    if (found == all.end()) return 2;

    CUdevice device;
    CUstream own;
    void *mapped;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    NEED(cuMemAddressReserve(&away, BYTES, 0, 0, 0));
    map_memory();
    NEED(cuMemAlloc(&other, BYTES));
    NEED(cuMemHostAlloc((void **)&pinned, BYTES, 0));
    NEED(cuMemHostAlloc(&mapped, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    NEED(cuMemHostGetDevicePointer(&flag_address, mapped, 0));
    flag = (volatile unsigned *)mapped;
    *flag = 0;
    pageable = (unsigned char *)malloc(BYTES);
    memset(pinned, FILL, BYTES);
    memset(pageable, FILL, BYTES);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    fill<<<64, 256, 0, (cudaStream_t)own>>>((unsigned *)other, BYTES / 4, 0x5a5a5a5a);
    fill<<<64, 256, 0, (cudaStream_t)own>>>((unsigned *)away, BYTES / 4, 1);
    NEED(cuCtxSynchronize());
    make_graph();

    NEED(cuStreamWaitValue32(stream, flag_address, 1, CU_STREAM_WAIT_VALUE_GEQ));
    NEED(cuMemUnmap(away, BYTES));
    NEED(cuMemRelease(handle));
    CUresult called = found->second.call();
    map_memory();
    fill<<<64, 256, 0, (cudaStream_t)own>>>((unsigned *)away, BYTES / 4, 1);
    NEED(cuStreamSynchronize(own));
    *flag = 1;
    CUresult then = cuStreamSynchronize(stream);
    const char *data = "-";
    if (!called && !then && found->second.fills) {
        std::vector<unsigned char> back(BYTES);
        NEED(cuMemcpyDtoH(back.data(), away, BYTES));
        data = "right";
        for (unsigned char byte : back) if (byte != FILL) data = "wrong";
    }
    printf("call %s then %s data %s\n", name(called), name(then), data);
    fflush(stdout);
    _exit(0);
}
