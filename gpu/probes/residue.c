// E7: what NVML says of a process after each thing it makes; whether memory imported from another process counts twice.
//
// Two processes, A and B, both with a context, each told by the first one what to do: so that NVML is asked from outside.
#include "probe.h"
#include <poll.h>

static int ends[2][2];
static pid_t pids[2];

struct order { int what; unsigned long long bytes; };
enum { CONTEXT = 1, SECOND, SECOND_ENDS, SMALL, PLAIN, PLAIN_FREE, CREATE, MAP, EXPORT, IMPORT, IMPORT_MAP, UNMAP, RELEASE, FILE_CLOSE,
       POOL, POOL_FREE, POOL_TRIM, MANAGED, MANAGED_FREE, ARRAY, ARRAY_FREE, GRAPH, GRAPH_FREE, PRINTF, STACK, STACK_BACK, HEAP, MODULES,
       STREAMS, RESET, QUIT };

static const char TINY[] = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry tiny() { ret; }\n";
// Asks for local memory, so that a larger stack limit is really taken.
static const char USES_STACK[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry deep(.param .u64 out) {\n"
    ".local .align 8 .b8 room[64];\n.reg .u64 %a<4>;\n.reg .u32 %b<3>;\nld.param.u64 %a1,[out];\nmov.u64 %a2, room;\n"
    "mov.u32 %b1, 7;\nst.local.u32 [%a2], %b1;\nld.local.u32 %b2,[%a2];\nst.global.u32 [%a1], %b2;\nret;\n}\n";

static void obey(int end)
{
    CUcontext second = 0;
    CUdeviceptr plain = 0, at = 0, pool_memory = 0, managed = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUarray array = 0;
    CUgraph graph = 0;
    CUgraphExec exec = 0;
    CUmemoryPool pool;
    CUmodule module;
    CUstream streams[64];
    unsigned long long size = 0;
    int file = -1;
    struct order order;
    while (read(end, &order, sizeof order) == sizeof order) {
        CUresult code = 0;
        switch (order.what) {
        case CONTEXT: begin(); break;
        case SECOND:
#if CUDA_VERSION >= 13000
            code = cuCtxCreate(&second, 0, 0, device);
#else
            code = cuCtxCreate(&second, 0, device);
#endif
            cuCtxSetCurrent(context);
            break;
        case SECOND_ENDS: code = cuCtxDestroy(second); cuCtxSetCurrent(context); break;
        case SMALL: { CUdeviceptr small; code = cuMemAlloc(&small, 512); break; }
        case PLAIN: code = cuMemAlloc(&plain, order.bytes); break;
        case PLAIN_FREE: code = cuMemFree(plain); break;
        case CREATE: { CUmemAllocationProp p = exportable(); size = order.bytes; code = cuMemCreate(&handle, size, &p, 0); break; }
        case MAP: at = mapped(handle, size); break;
        case EXPORT: code = cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); if (!code) send_file(end, file); break;
        case IMPORT: file = receive_file(end); size = order.bytes;
            code = cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); break;
        case IMPORT_MAP: at = mapped(handle, size); break;
        case UNMAP: code = cuMemUnmap(at, size); break;
        case RELEASE: code = cuMemRelease(handle); break;
        case FILE_CLOSE: close(file); break;
        case POOL: {
            cuuint64_t most = ~0ull;
            cuDeviceGetDefaultMemPool(&pool, device);
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most);
            code = cuMemAllocAsync(&pool_memory, order.bytes, 0);
            cuStreamSynchronize(0);
            break;
        }
        case POOL_FREE: code = cuMemFreeAsync(pool_memory, 0); cuStreamSynchronize(0); break;
        case POOL_TRIM: code = cuMemPoolTrimTo(pool, 0); break;
        case MANAGED: code = cuMemAllocManaged(&managed, order.bytes, CU_MEM_ATTACH_GLOBAL); if (!code) code = cuMemsetD8(managed, 1, order.bytes); cuCtxSynchronize(); break;
        case MANAGED_FREE: code = cuMemFree(managed); break;
        case ARRAY: { CUDA_ARRAY_DESCRIPTOR d = {8192, order.bytes / (8192 * 16), CU_AD_FORMAT_FLOAT, 4}; code = cuArrayCreate(&array, &d); break; }
        case ARRAY_FREE: code = cuArrayDestroy(array); break;
        case GRAPH: {
            CUstream stream;
            CUdeviceptr inside;
            NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            NEED(cuMemAllocAsync(&inside, order.bytes, stream));
            NEED(cuMemsetD8Async(inside, 1, order.bytes, stream));
            NEED(cuMemFreeAsync(inside, stream));
            NEED(cuStreamEndCapture(stream, &graph));
            NEED(cuGraphInstantiate(&exec, graph, 0));
            NEED(cuGraphLaunch(exec, stream));
            code = cuStreamSynchronize(stream);
            break;
        }
        case GRAPH_FREE: cuGraphExecDestroy(exec); cuGraphDestroy(graph); code = cuDeviceGraphMemTrim(device); break;
        case PRINTF: code = cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, order.bytes); break;
        case HEAP: code = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, order.bytes); break;
        case STACK: case STACK_BACK: {
            CUfunction deep;
            static CUdeviceptr out;
            void *arguments[] = {&out};
            code = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, order.bytes);
            if (code) break;
            if (!out) NEED(cuMemAlloc(&out, 512));
            NEED(cuModuleLoadData(&module, USES_STACK));
            NEED(cuModuleGetFunction(&deep, module, "deep"));
            NEED(cuLaunchKernel(deep, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
            code = cuCtxSynchronize();
            break;
        }
        case MODULES: for (unsigned long long i = 0; i < order.bytes && !code; i++) {
                CUfunction tiny;
                code = cuModuleLoadData(&module, TINY);
                if (!code) code = cuModuleGetFunction(&tiny, module, "tiny");
            }
            break;
        case STREAMS: for (int i = 0; i < 64 && !code; i++) code = cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING); break;
        case RESET: code = cuDevicePrimaryCtxReset(device); break;
        case QUIT: _exit(0);
        }
        if (write(end, &code, sizeof code) != sizeof code) _exit(1);
    }
    _exit(0);
}

static double seen[2], used;

static CUresult tell(int who, int what, unsigned long long bytes)
{
    struct order order = {what, bytes};
    CUresult code = (CUresult)-1;
    static int held = -1; // on its way from EXPORT to IMPORT
    if (write(ends[who][0], &order, sizeof order) != sizeof order) return code;
    if (what == IMPORT) {
        send_file(ends[who][0], held);
        close(held);
    }
    struct pollfd one = {ends[who][0], POLLIN, 0};
    if (poll(&one, 1, 20000) != 1) { printf("FAIL  process %c does not answer order %d\n", 'A' + who, what); exit(1); }
    if (what == EXPORT) held = receive_file(ends[who][0]);
    if (read(ends[who][0], &code, sizeof code) != sizeof code) { printf("FAIL  process %c ended at order %d\n", 'A' + who, what); exit(1); }
    return code;
}

static void step(const char *said, int who, int what, unsigned long long bytes)
{
    if (what) {
        CUresult code = tell(who, what, bytes);
        if (code) printf("      %s: code %d\n", said, (int)code);
    }
    usleep(60000);
    double a = nvml_process_mib(pids[0]), b = nvml_process_mib(pids[1]), all = nvml_used_mib();
    printf("FACT  %-52s A %8.1f (%+8.1f)  B %8.1f (%+8.1f)  device %9.1f (%+8.1f)\n", said, a, a - seen[0], b, b - seen[1], all, all - used);
    fflush(stdout);
    seen[0] = a, seen[1] = b, used = all;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (int who = 0; who < 2; who++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[who])) return perror("socketpair"), 1;
        pids[who] = fork();
        if (pids[who] == 0) {
            for (int other = 0; other <= who; other++) close(ends[other][0]);
            end_with_parent();
            obey(ends[who][1]);
        }
        close(ends[who][1]);
    }
    if (nvml_begin()) return 1;
    printf("      MiB by NVML: of each process, and used on the device; -1: not listed; -2: not said\n");
    step("before", 0, 0, 0);
    step("A: primary context", 0, CONTEXT, 0);
    step("B: primary context", 1, CONTEXT, 0);
    step("A: second context", 0, SECOND, 0);
    step("A: second context destroyed", 0, SECOND_ENDS, 0);
    step("A: first cuMemAlloc, of 512 B", 0, SMALL, 0);
    step("A: cuMemAlloc 1 GiB", 0, PLAIN, GIB);
    step("A: cuMemFree 1 GiB", 0, PLAIN_FREE, 0);
    step("A: cuMemAlloc 1 MiB", 0, PLAIN, MIB);
    step("A: cuMemFree 1 MiB", 0, PLAIN_FREE, 0);
    step("A: cuMemCreate 1 GiB, exportable", 0, CREATE, GIB);
    step("A: mapped", 0, MAP, 0);
    step("A: exported to B", 0, EXPORT, 0);
    step("B: imported", 1, IMPORT, GIB);
    step("B: mapped", 1, IMPORT_MAP, 0);
    step("A: unmapped", 0, UNMAP, 0);
    step("A: released", 0, RELEASE, 0);
    step("A: file closed (B alone holds it)", 0, FILE_CLOSE, 0);
    step("B: unmapped", 1, UNMAP, 0);
    step("B: released", 1, RELEASE, 0);
    step("B: file closed", 1, FILE_CLOSE, 0);
    step("A: pool 512 MiB, threshold max", 0, POOL, 512 * MIB);
    step("A: pool memory freed", 0, POOL_FREE, 0);
    step("A: pool trimmed", 0, POOL_TRIM, 0);
    step("A: managed 512 MiB, touched on the GPU", 0, MANAGED, 512 * MIB);
    step("A: managed freed", 0, MANAGED_FREE, 0);
    step("A: array 256 MiB", 0, ARRAY, 256 * MIB);
    step("A: array destroyed", 0, ARRAY_FREE, 0);
    step("A: graph with a memory node of 256 MiB, launched", 0, GRAPH, 256 * MIB);
    step("A: graph destroyed, graph memory trimmed", 0, GRAPH_FREE, 0);
    step("A: 64 streams", 0, STREAMS, 0);
    step("A: 200 modules", 0, MODULES, 200);
    step("A: printf buffer 256 MiB", 0, PRINTF, 256 * MIB);
    step("A: device malloc heap 256 MiB", 0, HEAP, 256 * MIB);
    step("A: stack 8 KiB a thread, a kernel run", 0, STACK, 8192);
    step("A: stack 1 KiB a thread, a kernel run", 0, STACK_BACK, 1024);
    step("A: primary context reset", 0, RESET, 0);
    for (int who = 0; who < 2; who++) {
        struct order order = {QUIT, 0};
        if (write(ends[who][0], &order, sizeof order) < 0) perror("write");
        waitpid(pids[who], 0, 0);
    }
    step("both ended", 0, 0, 0);
    return 0;
}
