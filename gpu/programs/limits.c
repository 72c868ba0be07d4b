// Takes memory of one family until there is no more, says what it got and what it is told, and holds it.
//
//   limits FAMILY BOUND_BYTES GO    waits for the files GO.1 (then frees all) and GO.2 (then takes all once more, and ends)
//
// Families: plain, pitched, async, pool, vmm, managed, array. Takes pieces of 256 MiB first, of 1 MiB last. Never takes more than
// BOUND_BYTES: who gets there had no limit. Prints a line of JSON for each stage: start, full, freed, again.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define PIECES_MAX 100000

static void check(CUresult result, const char *call, int line)
{
    if (result == CUDA_SUCCESS) return;
    const char *name = 0;
    cuGetErrorName(result, &name);
    fprintf(stderr, "limits.c:%d %s: %s\n", line, call, name ? name : "?");
    exit(1);
}
#define NEED(call) check((call), #call, __LINE__)

static const unsigned long long SIZES[] = {256 * MIB, 64 * MIB, 16 * MIB, 4 * MIB, 2 * MIB, 1 * MIB};
static struct piece { CUdeviceptr at; CUarray array; CUmemGenericAllocationHandle handle; unsigned long long bytes; } pieces[PIECES_MAX];
static int count;
static CUdevice device;
static CUstream stream;
static CUmemoryPool pool;
static const char *family;

static int is(const char *name) { return !strcmp(family, name); }

static CUresult take(struct piece *piece, unsigned long long bytes)
{
    CUresult code;
    memset(piece, 0, sizeof *piece);
    piece->bytes = bytes;
    if (is("plain")) return cuMemAlloc(&piece->at, bytes);
    if (is("pitched")) {
        size_t pitch;
        code = cuMemAllocPitch(&piece->at, &pitch, 4096, bytes / 4096, 4);
        if (!code && pitch != 4096) fprintf(stderr, "a row of 4096 bytes has a pitch of %zu\n", pitch), exit(1);
        return code;
    }
    if (is("async") || is("pool")) {
        code = is("async") ? cuMemAllocAsync(&piece->at, bytes, stream) : cuMemAllocFromPoolAsync(&piece->at, bytes, pool, stream);
        CUresult waited = cuStreamSynchronize(stream);
        return code ? code : waited;
    }
    if (is("managed")) {
        code = cuMemAllocManaged(&piece->at, bytes, CU_MEM_ATTACH_GLOBAL);
        if (!code) code = cuMemsetD8(piece->at, 1, bytes); // brings it to the device
        return code ? code : cuCtxSynchronize();
    }
    if (is("array")) {
        CUDA_ARRAY_DESCRIPTOR wanted = {1024, bytes / (1024 * 16), CU_AD_FORMAT_FLOAT, 4};
        return cuArrayCreate(&piece->array, &wanted);
    }
    // vmm
    CUmemAllocationProp wanted;
    CUmemAccessDesc access;
    memset(&wanted, 0, sizeof wanted);
    memset(&access, 0, sizeof access);
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device;
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    code = cuMemCreate(&piece->handle, bytes, &wanted, 0);
    if (code) return code;
    NEED(cuMemAddressReserve(&piece->at, bytes, 0, 0, 0));
    NEED(cuMemMap(piece->at, bytes, 0, piece->handle, 0));
    NEED(cuMemSetAccess(piece->at, bytes, &access, 1));
    return CUDA_SUCCESS;
}

static void give(struct piece *piece)
{
    if (is("async") || is("pool")) NEED(cuMemFreeAsync(piece->at, stream));
    else if (is("array")) NEED(cuArrayDestroy(piece->array));
    else if (is("vmm")) {
        NEED(cuMemUnmap(piece->at, piece->bytes));
        NEED(cuMemAddressFree(piece->at, piece->bytes));
        NEED(cuMemRelease(piece->handle));
    } else NEED(cuMemFree(piece->at));
}

// Answers what all pieces have together; `last` is the code that ended it.
static unsigned long long take_all(unsigned long long bound, CUresult *last)
{
    unsigned long long all = 0;
    *last = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        if (is("vmm") && SIZES[i] < 2 * MIB) continue;
        while (count < PIECES_MAX && all + SIZES[i] <= bound) {
            CUresult code = take(&pieces[count], SIZES[i]);
            if (code) {
                *last = code;
                if (code != CUDA_ERROR_OUT_OF_MEMORY) return all;
                break;
            }
            all += SIZES[i];
            count++;
        }
    }
    return all;
}

struct memory { unsigned long long total, free, used; };

static void say(const char *stage, unsigned long long taken, CUresult last)
{
    size_t free_bytes = 0, total_bytes = 0, device_bytes = 0;
    struct memory nvml = {0};
    const char *name = 0;
    char smi[64] = "";
    NEED(cuMemGetInfo(&free_bytes, &total_bytes));
    NEED(cuDeviceTotalMem(&device_bytes, device));
    int status = -1;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *gpu = 0;
    if (library) {
        int (*begin)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
        int (*find)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        int (*ask)(void *, struct memory *) = (int (*)(void *, struct memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
        status = begin && find && ask ? begin() : -2;
        if (!status) status = find(0, &gpu);
        if (!status) status = ask(gpu, &nvml);
    }
    FILE *pipe = popen("nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader,nounits 2>/dev/null", "r");
    if (pipe) {
        if (!fgets(smi, sizeof smi, pipe)) smi[0] = 0;
        pclose(pipe);
        smi[strcspn(smi, "\n")] = 0;
    }
    cuGetErrorName(last, &name);
    printf("{\"stage\": \"%s\", \"pid\": %d, \"taken\": %llu, \"last\": \"%s\", \"free\": %zu, \"total\": %zu, \"device_total\": %zu, "
           "\"nvml_status\": %d, \"nvml_total\": %llu, \"nvml_used\": %llu, \"nvidia_smi\": \"%s\"}\n",
           stage, getpid(), taken, name ? name : "?", free_bytes, total_bytes, device_bytes, status, nvml.total, nvml.used, smi);
    fflush(stdout);
}

static void wait_for(const char *go, int number)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", go, number);
    while (access(path, F_OK)) usleep(5000);
}

int main(int given, char **arguments)
{
    if (given != 4) return fprintf(stderr, "limits FAMILY BOUND_BYTES GO\n"), 2;
    family = arguments[1];
    if (!is("plain") && !is("pitched") && !is("async") && !is("pool") && !is("vmm") && !is("managed") && !is("array"))
        return fprintf(stderr, "no such family: %s\n", family), 2;
    unsigned long long bound = strtoull(arguments[2], 0, 10), taken;
    CUcontext context;
    CUresult last;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (is("pool")) {
        CUmemPoolProps wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        wanted.location.id = device;
        NEED(cuMemPoolCreate(&pool, &wanted));
    }
    say("start", 0, CUDA_SUCCESS);
    taken = take_all(bound, &last);
    say("full", taken, last);
    wait_for(arguments[3], 1);
    for (int i = 0; i < count; i++) give(&pieces[i]);
    NEED(cuCtxSynchronize());
    count = 0;
    say("freed", 0, CUDA_SUCCESS);
    wait_for(arguments[3], 2);
    taken = take_all(bound, &last);
    say("again", taken, last);
    return 0;
}
