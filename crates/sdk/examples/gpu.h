/* A little of the CUDA driver, found when the program runs: the examples need no toolkit. */
#ifndef EXAMPLE_GPU_H
#define EXAMPLE_GPU_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *gpu_library;
static unsigned long long gpu_memory;
enum { GPU_BYTES = 1 << 20 };

static int gpu_failed(const char *what, int code) {
    if (code != 0) fprintf(stderr, "%s failed: %d\n", what, code);
    return code != 0;
}

static void *gpu_function(const char *name) {
    void *function = dlsym(gpu_library, name);
    if (!function) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(2);
    }
    return function;
}

/* A context on the first GPU, with some memory. */
static void gpu_begin(void) {
    void *context = NULL;
    gpu_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!gpu_library) {
        fprintf(stderr, "no CUDA driver here: %s\n", dlerror());
        exit(2);
    }
    if (gpu_failed("cuInit", ((int (*)(unsigned))gpu_function("cuInit"))(0)) ||
        gpu_failed("cuDevicePrimaryCtxRetain",
                   ((int (*)(void **, int))gpu_function("cuDevicePrimaryCtxRetain"))(&context, 0)) ||
        gpu_failed("cuCtxSetCurrent", ((int (*)(void *))gpu_function("cuCtxSetCurrent"))(context)) ||
        gpu_failed("cuMemAlloc", ((int (*)(unsigned long long *, size_t))gpu_function("cuMemAlloc_v2"))(
                                     &gpu_memory, GPU_BYTES)))
        exit(2);
}

/* What a request has to do, and its result. */
static void gpu_work(int value) {
    unsigned char found = 0;
    typedef int (*set_function)(unsigned long long, unsigned char, size_t);
    typedef int (*get_function)(void *, unsigned long long, size_t);
    if (gpu_failed("cuMemsetD8", ((set_function)gpu_function("cuMemsetD8_v2"))(
                                     gpu_memory, (unsigned char)value, GPU_BYTES)) ||
        gpu_failed("cuCtxSynchronize", ((int (*)(void))gpu_function("cuCtxSynchronize"))()) ||
        gpu_failed("cuMemcpyDtoH", ((get_function)gpu_function("cuMemcpyDtoH_v2"))(
                                       &found, gpu_memory + GPU_BYTES - 1, 1)))
        exit(2);
    if (found != (unsigned char)value) {
        fprintf(stderr, "wrong result: %d, not %d\n", found, value & 0xff);
        exit(3);
    }
}

/* What happens on the processor. */
static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

#endif
