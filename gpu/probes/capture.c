// E4: what calls answer while a stream captures, and whether the capture lives on; memory nodes of graphs.
//
// Every case is a capture of its own on stream X; `other` is a stream that does not capture. The code of the call, then that of
// cuStreamEndCapture: STREAM_CAPTURE_INVALIDATED there means that the call broke the capture.
#include "probe.h"

static CUstream x, other;
static CUdeviceptr plain, plain_b, pooled, pooled_b, vmm, inside;
static CUmemGenericAllocationHandle handle;
static CUevent event;
static CUmemoryPool pool, own_pool;
static void *host;

static CUresult free_async(CUdeviceptr *what, CUstream stream)
{
    CUresult code = cuMemFreeAsync(*what, stream);
    return code;
}

static CUresult inside_alloc(void) { return cuMemAllocAsync(&inside, MIB, x); }
static CUresult inside_both(void)
{
    CUresult code = cuMemAllocAsync(&inside, MIB, x);
    return code ? code : cuMemFreeAsync(inside, x);
}
static CUresult f_pool_x(void) { return free_async(&pooled, x); }
static CUresult f_plain_x(void) { return free_async(&plain, x); }
static CUresult f_vmm_x(void) { return free_async(&vmm, x); }
static CUresult f_pool_other(void) { return free_async(&pooled, other); }
static CUresult f_plain_other(void) { return free_async(&plain, other); }
static CUresult a_other(void) { CUdeviceptr p; return cuMemAllocAsync(&p, MIB, other); }
static CUresult a_plain(void) { CUdeviceptr p; return cuMemAlloc(&p, MIB); }
static CUresult a_pitch(void) { CUdeviceptr p; size_t pitch; return cuMemAllocPitch(&p, &pitch, 1000, 10, 4); }
static CUresult a_managed(void) { CUdeviceptr p; return cuMemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL); }
static CUresult a_host(void) { void *p; return cuMemHostAlloc(&p, MIB, 0); }
static CUresult f_plain(void) { return cuMemFree(plain_b); }
static CUresult f_pooled(void) { return cuMemFree(pooled_b); }
static CUresult v_create(void) { CUmemGenericAllocationHandle h; CUmemAllocationProp p = exportable(); return cuMemCreate(&h, 2 * MIB, &p, 0); }
static CUresult v_reserve(void) { CUdeviceptr p; return cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0); }
static CUdeviceptr spare;
static CUmemGenericAllocationHandle spare_handle;
static CUresult v_map(void) { return cuMemMap(spare, 2 * MIB, 0, spare_handle, 0); }
static CUresult v_access(void)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(vmm, 2 * MIB, &access, 1);
}
static CUresult v_unmap(void) { return cuMemUnmap(spare, 2 * MIB); }
static CUresult v_release(void) { CUresult code = cuMemRelease(spare_handle); return code; }
static CUresult v_export(void)
{
    int file = -1;
    CUresult code = cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (file >= 0) close(file);
    return code;
}
static CUresult q_info(void) { size_t a, b; return cuMemGetInfo(&a, &b); }
static CUresult q_attribute(void) { unsigned type; return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain); }
static CUresult q_range(void) { CUdeviceptr p; size_t b; return cuMemGetAddressRange(&p, &b, plain); }
static CUresult q_pool(void) { cuuint64_t v; return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v); }
static CUresult q_graphmem(void) { cuuint64_t v; return cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &v); }
static CUresult p_trim(void) { return cuMemPoolTrimTo(pool, 0); }
static CUresult p_create(void)
{
    CUmemoryPool made;
    CUmemPoolProps wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemPoolCreate(&made, &wanted);
}
static CUresult s_ctx(void) { return cuCtxSynchronize(); }
static CUresult s_other(void) { return cuStreamSynchronize(other); }
static CUresult s_legacy(void) { return cuStreamQuery(0); }
static CUresult s_query(void) { return cuStreamQuery(other); }
static CUresult s_x(void) { return cuStreamQuery(x); }
static CUresult e_record(void) { return cuEventRecord(event, other); }
static CUresult e_query(void) { return cuEventQuery(event); }
static CUresult e_sync(void) { return cuEventSynchronize(event); }
static CUresult e_wait(void) { return cuStreamWaitEvent(x, event, 0); }
static CUresult s_create(void) { CUstream s; return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING); }
static CUresult m_load(void) { CUmodule m; return cuModuleLoadData(&m, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry t() { ret; }\n"); }
static CUresult c_sync(void) { char b[64]; return cuMemcpyDtoH(b, plain, sizeof b); }
static CUresult is_capturing(void) { CUstreamCaptureStatus s; return cuStreamIsCapturing(x, &s); }
static CUresult is_capturing_legacy(void) { CUstreamCaptureStatus s; return cuStreamIsCapturing(0, &s); }

static const struct { const char *what; CUresult (*call)(void); } CASES[] = {
    {"cuMemAllocAsync in the capture", inside_alloc},
    {"cuMemAllocAsync + cuMemFreeAsync in the capture", inside_both},
    {"cuMemFreeAsync in it, of pool memory from before", f_pool_x},
    {"cuMemFreeAsync in it, of cuMemAlloc memory", f_plain_x},
    {"cuMemFreeAsync in it, of VMM memory", f_vmm_x},
    {"cuMemFreeAsync on another stream, pool memory", f_pool_other},
    {"cuMemFreeAsync on another stream, cuMemAlloc memory", f_plain_other},
    {"cuMemAllocAsync on another stream", a_other},
    {"cuMemAlloc", a_plain},
    {"cuMemAllocPitch", a_pitch},
    {"cuMemAllocManaged", a_managed},
    {"cuMemHostAlloc", a_host},
    {"cuMemFree of cuMemAlloc memory", f_plain},
    {"cuMemFree of pool memory", f_pooled},
    {"cuMemCreate", v_create},
    {"cuMemAddressReserve", v_reserve},
    {"cuMemMap", v_map},
    {"cuMemSetAccess", v_access},
    {"cuMemUnmap", v_unmap},
    {"cuMemRelease", v_release},
    {"cuMemExportToShareableHandle", v_export},
    {"cuMemGetInfo", q_info},
    {"cuPointerGetAttribute", q_attribute},
    {"cuMemGetAddressRange", q_range},
    {"cuMemPoolGetAttribute", q_pool},
    {"cuDeviceGetGraphMemAttribute", q_graphmem},
    {"cuMemPoolTrimTo", p_trim},
    {"cuMemPoolCreate", p_create},
    {"cuCtxSynchronize", s_ctx},
    {"cuStreamSynchronize(other)", s_other},
    {"cuStreamQuery(legacy)", s_legacy},
    {"cuStreamQuery(other)", s_query},
    {"cuStreamQuery(capturing)", s_x},
    {"cuEventRecord(other)", e_record},
    {"cuEventQuery", e_query},
    {"cuEventSynchronize", e_sync},
    {"cuStreamWaitEvent(capturing, event from outside)", e_wait},
    {"cuStreamCreate", s_create},
    {"cuModuleLoadData", m_load},
    {"cuMemcpyDtoH", c_sync},
    {"cuStreamIsCapturing(capturing)", is_capturing},
    {"cuStreamIsCapturing(legacy)", is_capturing_legacy},
};

// Without the words that all of them have.
static const char *brief(const char *code)
{
    if (!strcmp(code, "CUDA_SUCCESS")) return "ok";
    return strncmp(code, "STREAM_CAPTURE_", 15) ? code : code + 15;
}

// What a case may have used up is made anew, so that each case starts alike.
static void refresh(void)
{
    CUmemAllocationProp wanted = exportable();
    // What a case freed in a stream must be gone by then: freed once more before that, the driver crashes.
    cuStreamSynchronize(other);
    cuMemFree(plain), cuMemFree(plain_b), cuMemFree(pooled), cuMemFree(pooled_b);
    cuCtxSynchronize();
    NEED(cuMemAlloc(&plain, MIB));
    NEED(cuMemAlloc(&plain_b, MIB));
    NEED(cuMemAllocAsync(&pooled, MIB, other));
    NEED(cuMemAllocAsync(&pooled_b, MIB, other));
    NEED(cuStreamSynchronize(other));
    cuMemUnmap(spare, 2 * MIB);
    NEED(cuMemCreate(&spare_handle, 2 * MIB, &wanted, 0));
    NEED(cuEventRecord(event, other));
    NEED(cuStreamSynchronize(other));
}

// Graphs with memory nodes, one fact after the other.
static void graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    cuuint64_t used = 0, reserved = 0;
    CUresult code;
    NEED(cuStreamBeginCapture(x, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(cuMemAllocAsync(&inside, 64 * MIB, x));
    NEED(cuMemsetD8Async(inside, 7, 64 * MIB, x));
    NEED(cuStreamEndCapture(x, &graph));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    code = cuGraphLaunch(exec, x);
    cuStreamSynchronize(x);
    fact("a graph whose allocation is not freed in it: launch %s", name(code));
    cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    fact("  graph memory used %.1f MiB, reserved %.1f MiB", used / (double)MIB, reserved / (double)MIB);
    fact("  second launch without a free: %s", name(cuGraphLaunch(exec, x)));
    code = cuMemFreeAsync(inside, x);
    cuStreamSynchronize(x);
    fact("  its allocation freed outside by cuMemFreeAsync: %s", name(code));
    fact("  launch again: %s", name(cuGraphLaunch(exec, x)));
    cuStreamSynchronize(x);
    fact("  its allocation freed outside by cuMemFree: %s", name(cuMemFree(inside)));
    fact("  launch, then exec and graph destroyed: %s", name(cuGraphLaunch(exec, x)));
    cuStreamSynchronize(x);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    fact("  afterwards used %.1f MiB, reserved %.1f MiB; memory usable: %s", used / (double)MIB, reserved / (double)MIB, name(cuMemsetD8(inside, 1, MIB)));
    fact("  freed then: %s", name(cuMemFree(inside)));
    cuDeviceGraphMemTrim(device);
    cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    fact("  reserved after the free and a trim: %.1f MiB", reserved / (double)MIB);

    // A free node of memory from before the graph, by name and by capture.
    NEED(cuGraphCreate(&graph, 0));
    refresh();
    fact("free node in a graph of pool memory from before: %s", name(cuGraphAddMemFreeNode(&node, graph, 0, 0, pooled)));
    fact("free node in a graph of cuMemAlloc memory: %s", name(cuGraphAddMemFreeNode(&node, graph, 0, 0, plain)));
    fact("free node in a graph of VMM memory: %s", name(cuGraphAddMemFreeNode(&node, graph, 0, 0, vmm)));
    cuGraphDestroy(graph);
}

static void pools(void)
{
    CUmemPoolProps wanted;
    CUdeviceptr memory, again;
    cuuint64_t value = 0;
    CUresult code;
    memset(&wanted, 0, sizeof wanted);
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(cuMemPoolCreate(&own_pool, &wanted));
    NEED(cuMemAllocFromPoolAsync(&memory, 64 * MIB, own_pool, other));
    NEED(cuStreamSynchronize(other));
    cuMemPoolGetAttribute(own_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
    fact("own pool with 64 MiB: reserved %.1f MiB", value / (double)MIB);
    fact("cuMemPoolDestroy of a pool in use: %s", name(cuMemPoolDestroy(own_pool)));
    fact("  its memory afterwards: memset %s", name(cuMemsetD8(memory, 1, MIB)));
    fact("  cuMemAllocFromPoolAsync from it: %s", name(cuMemAllocFromPoolAsync(&again, MIB, own_pool, other)));
    code = cuMemFreeAsync(memory, other);
    cuStreamSynchronize(other);
    fact("  cuMemFreeAsync of it: %s", name(code));
    fact("  cuMemPoolDestroy once more: %s", name(cuMemPoolDestroy(own_pool)));
    NEED(cuMemAllocAsync(&memory, MIB, other));
    NEED(cuMemFreeAsync(memory, other));
    fact("cuMemFreeAsync twice: %s", name(cuMemFreeAsync(memory, other)));
    fact("cuMemFree after cuMemFreeAsync: %s", name(cuMemFree(memory)));
    cuStreamSynchronize(other);
    fact("cuMemFreeAsync of VMM memory: %s", name(cuMemFreeAsync(vmm, other)));
    fact("cuMemFreeAsync of an address in the middle: %s", name((refresh(), cuMemFreeAsync(pooled + 512, other))));
    fact("cuMemFreeAsync of 0: %s", name(cuMemFreeAsync(0, other)));
    fact("cuMemAllocAsync of 0 bytes: %s", name(cuMemAllocAsync(&memory, 0, other)));
    fact("cuMemAllocAsync larger than the device: %s", name(cuMemAllocAsync(&memory, 1ull << 40, other)));
    fact("cuMemAlloc larger than the device: %s", name(cuMemAlloc(&memory, 1ull << 40)));
}

int main(void)
{
    static const char *const MODES[] = {"GLOBAL", "THREAD_LOCAL", "RELAXED"};
    begin();
    CUmemAllocationProp wanted = exportable();
    NEED(cuStreamCreate(&x, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, 0));
    NEED(cuDeviceGetDefaultMemPool(&pool, device));
    NEED(cuMemHostAlloc(&host, MIB, 0));
    NEED(cuMemCreate(&handle, 2 * MIB, &wanted, 0));
    vmm = mapped(handle, 2 * MIB);
    NEED(cuMemAddressReserve(&spare, 2 * MIB, 0, 0, 0));
    printf("      while a stream captures: the answer, and after / that of the end of the capture where it is not CUDA_SUCCESS\n");
    printf("      %-50s", "");
    for (int mode = 0; mode < 3; mode++) printf(" | %-34s", MODES[mode]);
    printf("\n");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        printf("FACT  %-50s", CASES[i].what);
        for (int mode = 0; mode < 3; mode++) {
            CUgraph graph = 0;
            refresh();
            if (CASES[i].call == v_unmap) cuMemMap(spare, 2 * MIB, 0, spare_handle, 0);
            NEED(cuStreamBeginCapture(x, (CUstreamCaptureMode)mode));
            char called[64];
            snprintf(called, sizeof called, "%s", name(CASES[i].call()));
            CUresult ended = cuStreamEndCapture(x, &graph);
            if (graph) cuGraphDestroy(graph);
            char both[160];
            snprintf(both, sizeof both, ended ? "%s / %s" : "%s", brief(called), brief(name(ended)));
            printf(" | %-34s", both);
        }
        printf("\n");
        fflush(stdout);
    }
    graphs();
    pools();
    return 0;
}
