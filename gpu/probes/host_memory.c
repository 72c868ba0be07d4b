// E9: the host's memory mapped at addresses of the device (cuMemCreate with HOST, HOST_NUMA and HOST_NUMA_CURRENT).
//
// What can be made, with which handle types; what the driver says of such memory; whether another process can import it and copy
// into it, also while its owner stands still in the middle of a kernel; what NVML counts; how fast kernels and copies are. The owner
// is this process, the importer a child that gets the file through a socket.
#include "probe.h"
#include <time.h>

#define SMALL (64 * MIB)
#define LARGE (4 * GIB)

static const char PTX[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
#define KERNEL(name, body)                                                                                              \
    ".visible .entry " name "(.param .u64 at, .param .u64 pairs)\n{\n"                                                  \
    ".reg .pred %p; .reg .u32 %r<5>; .reg .u64 %d<9>;\n"                                                                \
    "ld.param.u64 %d1, [at]; ld.param.u64 %d2, [pairs];\n"                                                              \
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"                \
    "cvt.u64.u32 %d3, %r4; mov.u32 %r1, %nctaid.x; mul.wide.u32 %d4, %r1, %r2; mov.u64 %d8, 0;\n"                       \
    "again: setp.ge.u64 %p, %d3, %d2; @%p bra done;\n"                                                                  \
    "shl.b64 %d5, %d3, 4; add.u64 %d5, %d1, %d5;\n" body "add.u64 %d3, %d3, %d4; bra again;\n"                          \
    "done: setp.eq.u64 %p, %d8, 0x5eed; @!%p bra over; st.global.u64 [%d1], %d8; over: ret;\n}\n"
    KERNEL("writes", "not.b64 %d6, %d3; st.global.v2.u64 [%d5], {%d3, %d6};\n")
    KERNEL("reads", "ld.global.v2.u64 {%d6, %d7}, [%d5]; xor.b64 %d8, %d8, %d6; xor.b64 %d8, %d8, %d7;\n")
    KERNEL("rewrites", "ld.global.v2.u64 {%d6, %d7}, [%d5]; add.u64 %d6, %d6, 1; add.u64 %d7, %d7, 1; st.global.v2.u64 [%d5], {%d6, %d7};\n")
    ".visible .entry spins(.param .u64 ns)\n{\n.reg .pred %p; .reg .u64 %d<5>;\n"
    "ld.param.u64 %d1, [ns]; mov.u64 %d2, %globaltimer;\n"
    "again: mov.u64 %d3, %globaltimer; sub.u64 %d4, %d3, %d2; setp.lt.u64 %p, %d4, %d1; @%p bra again;\nret;\n}\n";

static CUmodule module;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static CUmemAllocationProp on_host(int type, int id, int files)
{
    CUmemAllocationProp wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = (CUmemLocationType)type;
    wanted.location.id = id;
    wanted.requestedHandleTypes = files ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    return wanted;
}

static CUresult launch(const char *kernel, CUdeviceptr at, unsigned long long second, CUstream stream)
{
    CUfunction function;
    void *parameters[] = {&at, &second};
    CUresult code = cuModuleGetFunction(&function, module, kernel);
    int alone = !strcmp(kernel, "spins");
    return code ? code : cuLaunchKernel(function, alone ? 1 : 1056, 1, 1, alone ? 32 : 512, 1, 1, 0, stream, parameters, 0);
}

// GB/s of a kernel over memory, the best of three.
static double speed(const char *kernel, CUdeviceptr at, size_t bytes)
{
    double best = 0;
    for (int i = 0; i < 4; i++) {
        double began = now_s();
        CUresult code = launch(kernel, at, bytes / 16, 0);
        if (!code) code = cuCtxSynchronize();
        if (code) return printf("      %s: %s\n", kernel, name(code)), -1;
        double gbs = bytes / 1e9 / (now_s() - began);
        if (i && gbs > best) best = gbs;
    }
    return best;
}

static void makes(const char *what, int type, int id, int files)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp wanted = on_host(type, id, files), said;
    size_t granule = 0;
    CUresult granularity = cuMemGetAllocationGranularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUresult code = cuMemCreate(&handle, SMALL, &wanted, 0);
    fact("%-28s id %2d, files %d: granularity %s (%zu KiB), create %s", what, id, files, name(granularity), granule >> 10, name(code));
    if (code) return;
    memset(&said, 0, sizeof said);
    code = cuMemGetAllocationPropertiesFromHandle(&said, handle);
    fact("      its properties: %s, type %d, location type %d id %d, handle types %d", name(code), (int)said.type, (int)said.location.type, said.location.id, (int)said.requestedHandleTypes);
    int file = -1;
    code = cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    fact("      export: %s", name(code));
    if (file >= 0) close(file);
    CUdeviceptr at = 0;
    NEED(cuMemAddressReserve(&at, SMALL, 0, 0, 0));
    fact("      map: %s", name(cuMemMap(at, SMALL, 0, handle, 0)));
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    fact("      access for the device: %s", name(cuMemSetAccess(at, SMALL, &access, 1)));
    CUmemAccessDesc of_host = access;
    of_host.location = wanted.location;
    fact("      access for its own location: %s", name(cuMemSetAccess(at, SMALL, &of_host, 1)));
    unsigned kind = 0;
    int ordinal = -9;
    CUcontext owner = (CUcontext)1;
    void *host = (void *)1;
    CUresult a = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    CUresult b = cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    CUresult c = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at);
    CUresult d = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
    fact("      attributes: type %u (%s), ordinal %d (%s), context %p (%s), host pointer %p (%s)", kind, name(a), ordinal, name(b), (void *)owner, name(c), host, name(d));
    char byte = 7;
    fact("      copies: HtoD %s, DtoH %s, unified %s, memset %s, DtoD %s", name(cuMemcpyHtoD(at, &byte, 1)), name(cuMemcpyDtoH(&byte, at, 1)),
         name(cuMemcpy(at + 1, at, 1)), name(cuMemsetD8(at, 1, SMALL)), name(cuMemcpyDtoD(at + MIB, at, MIB)));
    fact("      unmap half: %s", name(cuMemUnmap(at, SMALL / 2)));
    cuMemUnmap(at, SMALL);
    cuMemAddressFree(at, SMALL);
    cuMemRelease(handle);
}

static void importer(int end)
{
    char go;
    begin();
    if (read(end, &go, 1) != 1) _exit(1);
    int file = receive_file(end);
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    fact("importer: import: %s", name(code));
    if (code) _exit(0);
    CUdeviceptr at = mapped(handle, SMALL);
    unsigned word = 0;
    code = cuMemcpyDtoH(&word, at, sizeof word);
    fact("importer: first word %#x (%s), the owner wrote 0x11111111", word, name(code));
    double began = now_s();
    code = cuMemsetD32(at, 0x22222222, SMALL / 4);
    if (!code) code = cuCtxSynchronize();
    fact("importer: writes while the owner stands still in a kernel: %s, %.1f ms", name(code), (now_s() - began) * 1e3);
    void *pinned;
    NEED(cuMemHostAlloc(&pinned, SMALL, 0));
    began = now_s();
    code = cuMemcpyDtoH(pinned, at, SMALL);
    fact("importer: copies it to pinned memory: %s, %.1f GB/s", name(code), SMALL / 1e9 / (now_s() - began));
    if (nvml_begin() == 0) fact("importer: by NVML %.1f MiB (a context, and 64 MiB of the host's imported)", nvml_process_mib(getpid()));
    if (write(end, "d", 1) != 1) _exit(1);
    if (read(end, &go, 1) != 1) _exit(0);
    code = cuMemcpyDtoH(&word, at, sizeof word);
    fact("importer: the owner has let it go; first word %#x (%s)", word, name(code));
    _exit(0);
}

static void shares(int node)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) perror("socketpair"), exit(1);
    pid_t child = fork();
    if (!child) end_with_parent(), close(ends[0]), importer(ends[1]);
    close(ends[1]);
    // After the fork: a driver that is there already does not survive it.
    begin();
    NEED(cuModuleLoadData(&module, PTX));
    struct { const char *name; int type, id; } places[] = {
        {"HOST", CU_MEM_LOCATION_TYPE_HOST, 0},           {"HOST_NUMA, near", CU_MEM_LOCATION_TYPE_HOST_NUMA, node},
        {"HOST_NUMA, none such", CU_MEM_LOCATION_TYPE_HOST_NUMA, 63}, {"HOST_NUMA_CURRENT", CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0},
    };
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++)
        for (int files = 0; files < 2; files++) makes(places[i].name, places[i].type, places[i].id, files);

    CUmemAllocationProp wanted = on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, node, 1);
    CUmemGenericAllocationHandle handle;
    CUresult code = cuMemCreate(&handle, SMALL, &wanted, 0);
    int file = -1;
    if (!code) code = cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code) {
        fact("memory of the host's cannot be shared: %s", name(code));
        kill(child, SIGKILL);
        return;
    }
    CUdeviceptr at = mapped(handle, SMALL);
    NEED(cuMemsetD32(at, 0x11111111, SMALL / 4));
    NEED(cuCtxSynchronize());
    double before = nvml_begin() ? -1 : nvml_process_mib(getpid());
    fact("owner: by NVML %.1f MiB with 64 MiB of the host's mapped", before);
    NEED(launch("spins", 2000000000ull, 0, 0));
    char done;
    if (write(ends[0], "g", 1) != 1) exit(1);
    send_file(ends[0], file);
    close(file);
    if (read(ends[0], &done, 1) != 1) fact("the importer ended early");
    NEED(cuCtxSynchronize());
    unsigned word = 0;
    NEED(cuMemcpyDtoH(&word, at + SMALL - 4, sizeof word));
    fact("owner: last word %#x, the importer wrote 0x22222222", word);
    NEED(cuMemUnmap(at, SMALL));
    NEED(cuMemRelease(handle));
    if (write(ends[0], "f", 1) != 1) exit(1);
    waitpid(child, 0, 0);
}

static double available_gib(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *info = fopen("/proc/meminfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
    if (info) fclose(info);
    return kib / 1048576.0;
}

static void measures(int node)
{
    CUmemAllocationProp wanted = on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, node, 0), there = exportable();
    CUmemGenericAllocationHandle host, plain;
    if (!nvml_gpu && nvml_begin()) return;
    double process = nvml_process_mib(getpid()), used = nvml_used_mib(), free = available_gib(), began = now_s();
    NEED(cuMemCreate(&host, LARGE, &wanted, 0));
    double made = now_s();
    CUdeviceptr at = mapped(host, LARGE);
    double in_place = now_s();
    fact("4 GiB on node %d: create %.2f s, map %.1f ms; NVML: process %+.1f MiB, GPU %+.1f MiB; the host has %.1f GiB less", node, made - began,
         (in_place - made) * 1e3, nvml_process_mib(getpid()) - process, nvml_used_mib() - used, free - available_gib());
    const char *kernels[] = {"writes", "reads", "rewrites"};
    for (int i = 0; i < 3; i++) fact("kernel %-8s the host's memory: %.1f GB/s", kernels[i], speed(kernels[i], at, LARGE));
    NEED(cuMemCreate(&plain, LARGE, &there, 0));
    CUdeviceptr on_device = mapped(plain, LARGE);
    for (int i = 0; i < 3; i++) fact("kernel %-8s the device's memory: %.0f GB/s", kernels[i], speed(kernels[i], on_device, LARGE));
    for (int way = 0; way < 2; way++) {
        began = now_s();
        NEED(way ? cuMemcpyDtoD(on_device, at, LARGE) : cuMemcpyDtoD(at, on_device, LARGE));
        NEED(cuCtxSynchronize());
        fact("copy %s: %.1f GB/s", way ? "from the host's to the device's" : "from the device's to the host's", LARGE / 1e9 / (now_s() - began));
    }
    // The same address, with other memory under it.
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    began = now_s();
    NEED(cuMemUnmap(on_device, LARGE));
    NEED(cuMemUnmap(at, LARGE));
    NEED(cuMemMap(on_device, LARGE, 0, host, 0));
    NEED(cuMemSetAccess(on_device, LARGE, &access, 1));
    fact("exchange under an address: %.1f ms", (now_s() - began) * 1e3);
    began = now_s();
    NEED(cuMemUnmap(on_device, LARGE));
    NEED(cuMemRelease(host));
    fact("unmap and release of 4 GiB of the host's: %.1f ms", (now_s() - began) * 1e3);
    // As rota makes it: in handles of 256 MiB.
    began = now_s();
    CUmemGenericAllocationHandle parts[16];
    for (int i = 0; i < 16; i++) NEED(cuMemCreate(&parts[i], 256 * MIB, &wanted, 0));
    fact("4 GiB in 16 handles: create %.2f s", now_s() - began);
    for (int i = 0; i < 16; i++) NEED(cuMemRelease(parts[i]));
}

int main(void)
{
    int node = 0, probe_ends[2];
    // The nearest node, found by a child: whoever forks may not have a driver yet.
    if (pipe(probe_ends)) return 1;
    pid_t child = fork();
    if (!child) {
        begin();
        CUresult code = cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
        fact("the node that is near: %d (%s)", node, name(code));
        if (code || node < 0) node = 0;
        if (write(probe_ends[1], &node, sizeof node) != sizeof node) _exit(1);
        _exit(0);
    }
    if (read(probe_ends[0], &node, sizeof node) != sizeof node) return printf("FAIL  the driver does not start\n"), 1;
    waitpid(child, 0, 0);
    shares(node);
    measures(node);
    return 0;
}
