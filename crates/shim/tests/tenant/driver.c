// A driver in software, for tests of the shim: one device, physical memory in memfds, and the few RM calls that a context
// makes. Loaded twice over: as the real driver (ROTA_DRIVER), and preloaded behind the shim so that its `ioctl` is the
// next one. What a test wants to know later is written to the file FAKE_LOG, one word a line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int file, unsigned long request, ...);

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, OPERATING_SYSTEM = 304, NOT_SUPPORTED = 801, CAPTURE = 900 };

static void note(const char *word) {
    const char *path = getenv("FAKE_LOG");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    dprintf(file, "%s\n", word);
    close(file);
}

// The RM behind the driver.

struct rm_alloc { uint32_t client, parent, handle, class; uint64_t parameters; uint32_t bytes, status; };
struct rm_control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t bytes, status; };
struct rm_free { uint32_t client, parent, handle, status; };

enum { CLIENT = 0xc1d00001, DEVICE = 2, SUBDEVICE = 3, GROUP = 4, CHANNEL = 5 };
static int control_file = -1;

int ioctl(int file, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (((request >> 8) & 0xff) != 'F') return (int)syscall(SYS_ioctl, file, request, argument);
    if ((request & 0xff) == 0x2a) {
        struct rm_control *control = argument;
        const uint8_t *parameters = (const uint8_t *)(uintptr_t)control->parameters;
        if (control->command == 0x2080110b) note(parameters[0] ? "freeze" : "thaw");
        if (control->command == 0xa06c0103) note("slice");
        control->status = 0;
    }
    return 0;
}

static void allocate(uint32_t parent, uint32_t handle, uint32_t class, void *parameters, uint32_t bytes) {
    struct rm_alloc alloc = {CLIENT, parent, handle, class, (uintptr_t)parameters, bytes, 0};
    ioctl(control_file, 0xc020462bul, &alloc);
}

static void make_channels(void) {
    uint32_t group[8] = {0, 0, 0, 1};
    uint8_t enable[3] = {1};
    struct rm_control schedule = {CLIENT, GROUP, 0xa06c0101, 0, (uintptr_t)enable, sizeof enable, 0};
    control_file = memfd_create("nvidiactl", MFD_CLOEXEC);
    allocate(CLIENT, CLIENT, 0x41, NULL, 0);
    allocate(CLIENT, DEVICE, 0x80, NULL, 0);
    allocate(DEVICE, SUBDEVICE, 0x2080, NULL, 0);
    allocate(DEVICE, GROUP, 0xa06c, group, sizeof group);
    allocate(GROUP, CHANNEL, 0xc86f, NULL, 0);
    ioctl(control_file, 0xc020462aul, &schedule);
    // The real one gives the group its slice last.
    const char *own = getenv("OWN_SLICE");
    uint64_t us = own ? strtoull(own, NULL, 10) : 0;
    struct rm_control slice = {CLIENT, GROUP, 0xa06c0103, 0, (uintptr_t)&us, sizeof us, 0};
    if (own) ioctl(control_file, 0xc020462aul, &slice);
}

static void free_channels(void) {
    struct rm_free all = {CLIENT, 0, CLIENT, 0};
    ioctl(control_file, 0xc0104629ul, &all);
    close(control_file);
}

// Devices and contexts: one of each.

static int primary, green, green_alive, references, capturing, deinitialized;
static __thread void *current;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { for (int i = 0; i < 16; i++) uuid[i] = i + device; return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 80ull << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)device; *value = attribute == 110; return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    if (references++ == 0) make_channels();
    *context = &primary;
    return SUCCESS;
}
static int let_go(int left) {
    references = left;
    if (left) return SUCCESS;
    free_channels();
    current = NULL;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return let_go(references - 1); }
int cuDevicePrimaryCtxRelease(int device) { (void)device; return let_go(references - 1); }
int cuDevicePrimaryCtxReset_v2(int device) { (void)device; return let_go(0); }
int cuDevicePrimaryCtxReset(int device) { (void)device; return let_go(0); }
int cuCtxDestroy_v2(void *context) { return context == &primary ? let_go(0) : INVALID_CONTEXT; }
int cuCtxDestroy(void *context) { return context == &primary ? let_go(0) : INVALID_CONTEXT; }
int cuCtxDetach(void *context) { return context == &primary ? let_go(references - 1) : INVALID_CONTEXT; }
int cuGreenCtxCreate(void **context, void *resources, int device, unsigned flags) {
    (void)resources, (void)device, (void)flags;
    references++;
    green_alive = 1;
    *context = &green;
    return SUCCESS;
}
int cuCtxFromGreenCtx(void **context, void *from) { *context = from; return SUCCESS; }
int cuGreenCtxDestroy(void *context) {
    if (context != &green) return INVALID_CONTEXT;
    green_alive = 0;
    current = NULL;
    return let_go(references - 1);
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0; *active = references > 0; return SUCCESS; }
int cuCtxSetCurrent(void *context) {
    if (context == &green && !green_alive) note("entered a dead context");
    current = context;
    return SUCCESS;
}
int cuCtxGetCurrent(void **context) { *context = current; return SUCCESS; }
int cuCtxGetDevice(int *device) { if (!current) return INVALID_CONTEXT; *device = 0; return SUCCESS; }
// Like the real driver's, this ends every capture in the context.
int cuCtxSynchronize(void) { if (capturing) note("capture spoilt"); return !current ? INVALID_CONTEXT : capturing ? CAPTURE : SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int *mode) { if (*mode == 2) note("relaxed"); return SUCCESS; }
int cuStreamQuery(void *stream) { (void)stream; return current ? SUCCESS : INVALID_CONTEXT; }
int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream; if (mode > 2) return INVALID_VALUE; capturing = 1; return SUCCESS; }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream, (void)graph; capturing = 0; return SUCCESS; }
int cuStreamIsCapturing(void *stream, int *status) { (void)stream; *status = capturing; return SUCCESS; }
void fake_deinitialize(void) { deinitialized = 1; }

// Memory. An address is an address of the host.

int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 70ull << 30; *total = 80ull << 30; return SUCCESS; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (!address || !bytes) return INVALID_VALUE;
    if (capturing) return CAPTURE;
    *address = (uintptr_t)malloc(bytes);
    note("native alloc");
    return SUCCESS;
}
int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    *address = (uintptr_t)malloc(*pitch * height); // Not by cuMemAlloc_v2, which is the shim's here.
    return SUCCESS;
}
int cuMemFree_v2(uint64_t address) {
    if (capturing) return CAPTURE;
    free((void *)(uintptr_t)address);
    note("native free");
    return SUCCESS;
}
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, unsigned long long flags) {
    (void)alignment, (void)wanted, (void)flags;
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *address = (uintptr_t)place;
    return place == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}
int cuMemAddressFree(uint64_t address, size_t bytes) { note("address free"); munmap((void *)(uintptr_t)address, bytes); return SUCCESS; }
int cuMemCreate(uint64_t *handle, size_t bytes, const void *wanted, unsigned long long flags) {
    (void)flags;
    const char *most = getenv("FAKE_CREATE_BYTES_MAX");
    if (most && bytes > strtoull(most, NULL, 0)) return OUT_OF_MEMORY;
    const char *times = getenv("FAKE_CREATES_MAX");
    static unsigned long long created;
    if (times && ++created > strtoull(times, NULL, 0)) return OUT_OF_MEMORY;
    const char *waits = getenv("FAKE_CREATE_WAITS"); // While this file is there.
    if (waits && !access(waits, F_OK)) note("creating");
    while (waits && !access(waits, F_OK)) usleep(1000);
    const char *refused = getenv("FAKE_REFUSED_TYPES"); // Ways of sharing that this driver does not know together.
    if (refused && ((const uint32_t *)wanted)[1] == strtoul(refused, NULL, 0)) return NOT_SUPPORTED;
    if (((const unsigned char *)wanted)[25] != 0) return INVALID_VALUE; // For RDMA: whoever registers it would not notice that it moves.
    int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return OUT_OF_MEMORY;
    *handle = (uint64_t)file;
    note("create");
    return SUCCESS;
}
// Handles that came by a file: like the real driver, this exports none of them.
static unsigned char imported[1 << 16];
int cuMemRelease(uint64_t handle) { note("release"); imported[handle % sizeof imported] = 0; close((int)handle); return SUCCESS; }
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    (void)flags;
    const char *fails = getenv("FAKE_MAP_FAILS");
    static unsigned long long mapped;
    if (fails && ++mapped == strtoull(fails, NULL, 0)) return NOT_SUPPORTED;
    void *place = mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return place == MAP_FAILED ? INVALID_VALUE : SUCCESS;
}
int cuMemUnmap(uint64_t address, size_t bytes) {
    if (deinitialized) return 4;
    void *place = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return place == MAP_FAILED ? INVALID_VALUE : SUCCESS;
}
int cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count) { (void)address, (void)bytes, (void)access; if (getenv("FAKE_NOTES_ACCESS")) note("access"); return count == 1 ? SUCCESS : INVALID_VALUE; }
int cuMemExportToShareableHandle(int *file, uint64_t handle, int kind, unsigned long long flags) {
    (void)flags;
    if (deinitialized) {
        note("export at the end");
        return 4;
    }
    const char *fails = getenv("FAKE_EXPORTS_FAIL"); // While this file is there.
    if (fails && !access(fails, F_OK)) return OPERATING_SYSTEM;
    *file = kind == 1 && !imported[handle % sizeof imported] ? fcntl((int)handle, F_DUPFD_CLOEXEC, 0) : -1;
    return *file < 0 ? INVALID_VALUE : SUCCESS;
}
int cuMemImportFromShareableHandle(uint64_t *handle, void *file, int kind) {
    const char *waits = getenv("FAKE_IMPORT_WAITS"); // While this file is there.
    if (waits && !access(waits, F_OK)) note("importing");
    while (waits && !access(waits, F_OK)) usleep(1000);
    if (getenv("FAKE_IMPORTS_FAIL")) return NOT_SUPPORTED;
    int copy = kind == 1 ? fcntl((int)(intptr_t)file, F_DUPFD_CLOEXEC, 0) : -1;
    *handle = (uint64_t)copy;
    if (copy >= 0) imported[copy % sizeof imported] = 1;
    return copy < 0 ? INVALID_VALUE : SUCCESS;
}
int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address) { (void)base, (void)bytes, (void)address; return INVALID_VALUE; }
// Like the real driver, this knows only what is mapped: the kernel refuses to read anything else.
static int is_mapped(uint64_t address) {
    int pipes[2];
    if (pipe(pipes)) return 0;
    ssize_t readable = write(pipes[1], (const void *)(uintptr_t)address, 1);
    close(pipes[0]);
    close(pipes[1]);
    return readable == 1;
}
int cuPointerGetAttribute(void *data, int attribute, uint64_t address) {
    if (!is_mapped(address)) return INVALID_VALUE;
    if (attribute == 9) *(int *)data = 0;
    else *(uint64_t *)data = 2 << 20;
    return SUCCESS;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    if (!is_mapped(to)) return INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}
// Each would hand out a reference to memory.
int cuMemRetainAllocationHandle(uint64_t *handle, void *address) { (void)handle, (void)address; return SUCCESS; }
int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int kind, unsigned long long flags) { (void)handle, (void)address, (void)bytes, (void)kind, (void)flags; return SUCCESS; }
int cuIpcGetMemHandle(void *handle, uint64_t address) { (void)handle, (void)address; return SUCCESS; }
int cuMulticastBindAddr(uint64_t multicast, size_t offset, uint64_t address, size_t bytes, unsigned long long flags) { (void)multicast, (void)offset, (void)address, (void)bytes, (void)flags; return SUCCESS; }
int cuPointerSetAttribute(const void *value, int attribute, uint64_t address) { (void)value, (void)attribute, (void)address; return SUCCESS; }
int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uint64_t address) { (void)count, (void)attributes, (void)data, (void)address; return SUCCESS; }
// Nine arguments, the most of a gated function: three of them on the stack.
int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *bytes, size_t count, void *a, void *b, size_t c, size_t *failed, void *stream) {
    if (a != (void *)5 || b != (void *)6 || c != 7 || stream != (void *)9) return INVALID_VALUE;
    *failed = count;
    return cuMemcpyHtoD_v2(*to, (const void *)(uintptr_t)*from, *bytes);
}

// Keeps a launch while there is a file of this name.
int cuGraphLaunch(void *graph, void *stream) {
    const char *held = getenv("LAUNCH_HELD");
    (void)graph, (void)stream;
    note("launch");
    while (held && !access(held, F_OK)) usleep(1000);
    return SUCCESS;
}

int cuModuleLoadData(void **module, const void *text) { (void)module, (void)text; note("load"); return NOT_SUPPORTED; }

#define MISSING(name) int name(void) { return NOT_SUPPORTED; }
MISSING(cuGetErrorName) MISSING(cuGetErrorString) MISSING(cuDeviceGetName)
MISSING(cuMemGetAllocationGranularity)
MISSING(cuMemHostRegister_v2) MISSING(cuMemHostUnregister)
MISSING(cuMemHostGetDevicePointer_v2) MISSING(cuMemHostAlloc) MISSING(cuMemFreeHost) MISSING(cuMemcpyDtoHAsync_v2) MISSING(cuMemsetD8Async)
MISSING(cuMemcpyHtoDAsync_v2) MISSING(cuMemcpyDtoDAsync_v2) MISSING(cuStreamCreate) MISSING(cuStreamDestroy_v2) MISSING(cuStreamSynchronize)
MISSING(cuEventCreate) MISSING(cuEventRecord) MISSING(cuEventQuery) MISSING(cuEventSynchronize)
MISSING(cuEventDestroy_v2) MISSING(cuModuleUnload) MISSING(cuModuleGetFunction)
MISSING(cuLaunchKernel)
