// What the probes share: codes by name, facts as lines, NVML without its header.
#pragma once
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static const char *name(CUresult result)
{
    static char number[32];
    const char *text = 0;
    cuGetErrorName(result, &text);
    if (text) return strncmp(text, "CUDA_ERROR_", 11) ? text : text + 11;
    snprintf(number, sizeof number, "code %d", (int)result);
    return number;
}

// A call without which the probe says nothing.
#define NEED(call)                                                                       \
    do {                                                                                 \
        CUresult need = (call);                                                          \
        if (need) {                                                                      \
            printf("FAIL  %s:%d %s: %s\n", __FILE__, __LINE__, #call, name(need));       \
            fflush(stdout);                                                              \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

static void fact(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("FACT  ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

// A child that a probe left waiting must not outlive it.
static inline void end_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static CUdevice device;
static CUcontext context;

static inline void begin(void)
{
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
}

static inline CUmemAllocationProp exportable(void)
{
    CUmemAllocationProp wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = 0;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return wanted;
}

// Reserves addresses, maps a handle there, allows all.
static inline CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr at;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    NEED(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    NEED(cuMemMap(at, bytes, 0, handle, 0));
    NEED(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

struct nvml_process { unsigned pid; unsigned long long used; unsigned instance, compute; };
struct nvml_memory { unsigned long long total, free, used; };
static void *nvml_library, *nvml_gpu;

static inline void *nvml_call(const char *symbol)
{
    void *found = dlsym(nvml_library, symbol);
    return found;
}

static inline int nvml_begin(void)
{
    nvml_library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml_library) return printf("FAIL  NVML: %s\n", dlerror()), 1;
    int status = ((int (*)(void))nvml_call("nvmlInit_v2"))();
    if (!status) status = ((int (*)(unsigned, void **))nvml_call("nvmlDeviceGetHandleByIndex_v2"))(0, &nvml_gpu);
    if (status) printf("FAIL  NVML answers %d\n", status);
    return status;
}

static inline double nvml_used_mib(void)
{
    struct nvml_memory memory = {0};
    ((int (*)(void *, struct nvml_memory *))nvml_call("nvmlDeviceGetMemoryInfo"))(nvml_gpu, &memory);
    return memory.used / (double)MIB;
}

// What NVML says of one process, in MiB; -1: it does not list it; -2: it does not say how much.
static inline double nvml_process_mib(unsigned pid)
{
    struct nvml_process rows[128];
    unsigned count = 128;
    int (*list)(void *, unsigned *, struct nvml_process *) =
        (int (*)(void *, unsigned *, struct nvml_process *))nvml_call("nvmlDeviceGetComputeRunningProcesses_v3");
    if (!list || list(nvml_gpu, &count, rows)) return -2;
    for (unsigned i = 0; i < count; i++)
        if (rows[i].pid == pid) return rows[i].used == ~0ull ? -2 : rows[i].used / (double)MIB;
    return -1;
}

static inline void send_file(int to, int file)
{
    char byte = 'f', room[CMSG_SPACE(sizeof file)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {0};
    memset(room, 0, sizeof room);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(part), &file, sizeof file);
    if (sendmsg(to, &message, 0) != 1) perror("sendmsg"), _exit(1);
}

static inline int receive_file(int from)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    int file = -1;
    struct iovec data = {&byte, 1};
    struct msghdr message = {0};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(from, &message, 0) != 1) perror("recvmsg"), _exit(1);
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    if (part) memcpy(&file, CMSG_DATA(part), sizeof file);
    return file;
}
