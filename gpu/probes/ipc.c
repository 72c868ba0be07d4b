// E8: facts about memory shared between processes the old way (cuIpc*), by files, and about what pins memory.
//
// The owner is this process, the opener a child that got its handles through a socket. Each prints its own facts.
#include "probe.h"

struct package { CUipcMemHandle whole, middle, small_a, small_b; CUdeviceptr at, small_a_at, small_b_at; };

static void get(int from, void *into, size_t bytes)
{
    for (size_t had = 0; had < bytes;) {
        ssize_t n = read(from, (char *)into + had, bytes - had);
        if (n <= 0) _exit(1);
        had += n;
    }
}

static void put(int to, const void *from, size_t bytes)
{
    if (write(to, from, bytes) != (ssize_t)bytes) _exit(1);
}

static unsigned first_word(CUdeviceptr at)
{
    unsigned word = 0;
    CUresult code = cuMemcpyDtoH(&word, at, sizeof word);
    if (code) printf("      cuMemcpyDtoH: %s\n", name(code));
    return word;
}

static void opener(int end)
{
    struct package given;
    CUdeviceptr one = 0, two = 0, middle = 0, a = 0, b = 0;
    CUresult code;
    char go;
    begin();
    get(end, &given, sizeof given);
    code = cuIpcOpenMemHandle(&one, given.whole, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: open: %s, first word %#x", name(code), first_word(one));
    code = cuIpcOpenMemHandle(&two, given.whole, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: open once more: %s, %s", name(code), code ? "-" : one == two ? "the same address" : "another address");
    code = cuIpcOpenMemHandle(&middle, given.middle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: handle of an address 1 MiB inside: %s, at first address %+lld", name(code), code ? 0ll : (long long)(middle - one));
    size_t bytes = 0;
    CUdeviceptr base = 0;
    cuMemGetAddressRange(&base, &bytes, one);
    fact("opener: range of the opened memory: %zu bytes, base %+lld", bytes, (long long)(base - one));
    code = cuIpcOpenMemHandle(&a, given.small_a, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: small A (512 B): %s, first word %#x", name(code), code ? 0 : first_word(a));
    code = cuIpcOpenMemHandle(&b, given.small_b, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: small B (512 B, beside it): %s, at A %+lld (for the owner %+lld), first word %#x", name(code), (long long)(b - a),
         (long long)(given.small_b_at - given.small_a_at), code ? 0 : first_word(b));
    unsigned kind = 0, legacy = 0, mapped_here = 0;
    cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, one);
    cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, one);
    cuPointerGetAttribute(&mapped_here, CU_POINTER_ATTRIBUTE_MAPPED, one);
    fact("opener: attributes of it: type %u, legacy IPC capable %u, mapped %u", kind, legacy, mapped_here);
    CUipcMemHandle passed_on;
    fact("opener: cuIpcGetMemHandle on opened memory: %s", name(cuIpcGetMemHandle(&passed_on, one)));
    fact("opener: cuMemFree of opened memory: %s", name(cuMemFree(one)));
    code = cuIpcCloseMemHandle(one);
    fact("opener: close once: %s, then first word %#x", name(code), first_word(one));
    fact("opener: close twice: %s", name(cuIpcCloseMemHandle(one)));
    fact("opener: close three times: %s", name(cuIpcCloseMemHandle(one)));
    code = cuIpcOpenMemHandle(&one, given.whole, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: open after all were closed: %s", name(code));
    if (nvml_begin() == 0) fact("opener: by NVML %.1f MiB (has 64 MiB open)", nvml_process_mib(getpid()));
    put(end, "o", 1);
    get(end, &go, 1); // the owner has freed it
    fact("opener: the owner freed it; first word now %#x", first_word(one));
    fact("opener: device memory used %.1f MiB", nvml_used_mib());
    fact("opener: close: %s", name(cuIpcCloseMemHandle(one)));
    usleep(50000);
    fact("opener: device memory used %.1f MiB", nvml_used_mib());
    code = cuIpcOpenMemHandle(&one, given.whole, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("opener: open after the owner freed it: %s", name(code));

    // By files.
    CUmemGenericAllocationHandle first = 0, second = 0;
    int file = receive_file(end);
    struct stat s;
    fstat(file, &s);
    fact("opener: the file: device %lu inode %lu", (unsigned long)s.st_dev, (unsigned long)s.st_ino);
    code = cuMemImportFromShareableHandle(&first, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    fact("opener: import of a handle that its owner released already: %s", name(code));
    if (!code) {
        CUdeviceptr at = mapped(first, 2 * MIB);
        fact("opener: first word %#x", first_word(at));
        code = cuMemImportFromShareableHandle(&second, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        fact("opener: imported once more: %s, %s", name(code), first == second ? "the same handle number" : "another handle number");
        CUmemAllocationProp found;
        memset(&found, 0, sizeof found);
        code = cuMemGetAllocationPropertiesFromHandle(&found, first);
        fact("opener: its properties: %s, handle types %u, location %u:%d", name(code), (unsigned)found.requestedHandleTypes, (unsigned)found.location.type, found.location.id);
        int again = -1;
        code = cuMemExportToShareableHandle(&again, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (!code) fstat(again, &s);
        fact("opener: exported from here: %s, inode %lu", name(code), code ? 0 : (unsigned long)s.st_ino);
    }
    fflush(stdout);
    _exit(0);
}

static void pinning(void)
{
    static const struct { const char *what; CUdevice_attribute which; } ASKED[] = {
        {"GPU_DIRECT_RDMA_SUPPORTED", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
        {"GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
        {"DMA_BUF_SUPPORTED", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
        {"HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
        {"HANDLE_TYPE_FABRIC_SUPPORTED", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
        {"MULTICAST_SUPPORTED", CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED},
        {"COMPUTE_MODE", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
        {"MEMORY_POOLS_SUPPORTED", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
        {"MEMPOOL_SUPPORTED_HANDLE_TYPES", CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES},
        {"PAGEABLE_MEMORY_ACCESS", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
        {"CONCURRENT_MANAGED_ACCESS", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
    };
    for (size_t i = 0; i < sizeof ASKED / sizeof *ASKED; i++) {
        int value = -1;
        CUresult code = cuDeviceGetAttribute(&value, ASKED[i].which, device);
        fact("attribute %s: %d (%s)", ASKED[i].what, value, name(code));
    }
    for (int rdma = 0; rdma < 2; rdma++) {
        CUmemAllocationProp wanted = exportable();
        CUmemGenericAllocationHandle handle;
        wanted.allocFlags.gpuDirectRDMACapable = rdma;
        CUresult code = cuMemCreate(&handle, 4 * MIB, &wanted, 0);
        fact("VMM, RDMA flag %d: create %s", rdma, name(code));
        if (code) continue;
        CUdeviceptr at = mapped(handle, 4 * MIB);
        unsigned on = 1;
        CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
        int file = -1;
        fact("VMM, RDMA flag %d: SYNC_MEMOPS %s", rdma, name(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at)));
        fact("VMM, RDMA flag %d: P2P_TOKENS %s", rdma, name(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, at)));
        code = cuMemGetHandleForAddressRange(&file, at, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        fact("VMM, RDMA flag %d: dmabuf of 2 of 4 MiB %s", rdma, name(code));
        if (file >= 0) {
            fact("VMM, RDMA flag %d: unmap while the dmabuf is open %s", rdma, name(cuMemUnmap(at, 4 * MIB)));
            close(file);
        } else cuMemUnmap(at, 4 * MIB);
        cuMemRelease(handle);
    }
    CUdeviceptr plain;
    unsigned on = 1;
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    int file = -1;
    NEED(cuMemAlloc(&plain, 4 * MIB));
    fact("cuMemAlloc: SYNC_MEMOPS %s", name(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain)));
    fact("cuMemAlloc: P2P_TOKENS %s", name(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, plain)));
    fact("cuMemAlloc: dmabuf %s", name(cuMemGetHandleForAddressRange(&file, plain, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)));
    if (file >= 0) close(file);
}

int main(void)
{
    int pair[2];
    char done;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return perror("socketpair"), 1;
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        end_with_parent();
        opener(pair[1]);
    }
    close(pair[1]);
    begin();
    struct package given;
    memset(&given, 0, sizeof given);
    CUdeviceptr opened = 0, pooled, managed;
    CUipcMemHandle unused;
    NEED(cuMemAlloc(&given.at, 64 * MIB));
    NEED(cuMemAlloc(&given.small_a_at, 512));
    NEED(cuMemAlloc(&given.small_b_at, 512));
    NEED(cuMemsetD32(given.at, 0x600d, 64 * MIB / 4));
    NEED(cuMemsetD32(given.small_a_at, 0xaaaa, 128));
    NEED(cuMemsetD32(given.small_b_at, 0xbbbb, 128));
    NEED(cuIpcGetMemHandle(&given.whole, given.at));
    fact("owner: cuIpcGetMemHandle of an address inside: %s", name(cuIpcGetMemHandle(&given.middle, given.at + MIB)));
    fact("owner: cuIpcGetMemHandle of 512 B: %s", name(cuIpcGetMemHandle(&given.small_a, given.small_a_at)));
    fact("owner: cuIpcGetMemHandle of 512 B beside them: %s", name(cuIpcGetMemHandle(&given.small_b, given.small_b_at)));
    CUipcMemHandle once_more;
    NEED(cuIpcGetMemHandle(&once_more, given.at));
    fact("owner: the handle asked for twice: %s; of an address inside: %s", memcmp(&once_more, &given.whole, 64) ? "differs" : "the same bytes",
         memcmp(&given.middle, &given.whole, 64) ? "differs" : "the same bytes");
    fact("owner: opened by the owner itself: %s", name(cuIpcOpenMemHandle(&opened, given.whole, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)));
    fact("owner: close of memory that was not opened: %s", name(cuIpcCloseMemHandle(given.at)));
    NEED(cuMemAllocAsync(&pooled, MIB, 0));
    NEED(cuStreamSynchronize(0));
    fact("owner: cuIpcGetMemHandle on pool memory: %s", name(cuIpcGetMemHandle(&unused, pooled)));
    NEED(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    fact("owner: cuIpcGetMemHandle on managed memory: %s", name(cuIpcGetMemHandle(&unused, managed)));
    fact("owner: cuIpcGetMemHandle on nothing: %s", name(cuIpcGetMemHandle(&unused, 0x1000)));
    CUipcMemHandle garbage;
    memset(&garbage, 0x5a, sizeof garbage);
    fact("owner: open of bytes that are no handle: %s", name(cuIpcOpenMemHandle(&opened, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)));
    put(pair[0], &given, sizeof given);
    get(pair[0], &done, 1);
    fact("owner: cuMemFree while it is open elsewhere: %s", name(cuMemFree(given.at)));
    put(pair[0], "f", 1);

    CUmemAllocationProp wanted = exportable();
    CUmemGenericAllocationHandle handle;
    int first = -1, second = -1;
    struct stat a, b;
    NEED(cuMemCreate(&handle, 2 * MIB, &wanted, 0));
    CUdeviceptr at = mapped(handle, 2 * MIB);
    NEED(cuMemsetD32(at, 0xf11e, 2 * MIB / 4));
    NEED(cuCtxSynchronize());
    NEED(cuMemExportToShareableHandle(&first, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    NEED(cuMemExportToShareableHandle(&second, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    fstat(first, &a), fstat(second, &b);
    fact("owner: two exports of one handle: device %lu inode %lu, device %lu inode %lu", (unsigned long)a.st_dev, (unsigned long)a.st_ino, (unsigned long)b.st_dev, (unsigned long)b.st_ino);
    NEED(cuMemUnmap(at, 2 * MIB));
    NEED(cuMemRelease(handle));
    send_file(pair[0], first);
    int status = 0;
    waitpid(child, &status, 0);
    if (status) printf("FAIL  the opener ended with status %d\n", status);
    pinning();
    return status ? 1 : 0;
}
