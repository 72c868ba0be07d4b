// E17: what of a process makes its loop of 5 us kernels 2% faster or slower than the next process's: its stream, where its code
// lies, or its context. Prints the microseconds of a kernel for the first stream, other streams, other copies of the code, and
// other contexts.
//
//   placement CUBIN NAME
#include <cuda.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <time.h>

#define NEED(call) do { CUresult need = (call); if (need) { const char *name = "?"; cuGetErrorName(need, &name); printf("FAIL  %s: %s\n", #call, name); exit(1); } } while (0)

extern "C" __global__ void spin(float *out, long rounds)
{
    float x = threadIdx.x;
    for (long i = 0; i < rounds; i++) x = x * 0.999f + 1.0f;
    if (x == -1) *out = x; // never, but the compiler cannot know
}

static int64_t now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static double each_us(CUfunction function, CUstream stream, CUdeviceptr out, double seconds)
{
    long rounds = 2500 /* about 5 us */, done = 0;
    void *arguments[] = {&out, &rounds};
    int64_t begin = now(), end;
    for (int pass = 0; pass < 2; pass++) { // the first is for clocks and caches
        done = 0;
        begin = now();
        do {
            for (int i = 0; i < 200; i++) NEED(cuLaunchKernel(function, 132, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
            NEED(cuStreamSynchronize(stream));
            done += 200;
            end = now();
        } while (end - begin < (pass ? seconds : 0.02) * 1e9);
    }
    return (end - begin) / 1e3 / done;
}

static CUfunction loaded(const char *cubin)
{
    CUmodule module;
    CUfunction function;
    NEED(cuModuleLoad(&module, cubin));
    NEED(cuModuleGetFunction(&function, module, "spin"));
    return function;
}

int main(int count, char **words)
{
    if (count < 3) return printf("usage: placement CUBIN NAME\n"), 2;
    const double WINDOW_S = 0.1;
    CUcontext context;
    CUdeviceptr out;
    CUstream first;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&out, 512));
    CUfunction function = loaded(words[1]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(5, &core);
    sched_setaffinity(0, sizeof core, &core);
    each_us(function, first, out, 0.3);
    printf("FACT  %-10s first %.3f %.3f  streams", words[2], each_us(function, first, out, WINDOW_S), each_us(function, first, out, WINDOW_S));
    for (int i = 0; i < 6; i++) {
        CUstream stream;
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        printf(" %.3f", each_us(function, stream, out, WINDOW_S));
    }
    printf("  code");
    for (int i = 0; i < 6; i++) printf(" %.3f", each_us(loaded(words[1]), first, out, WINDOW_S));
    printf("  first %.3f  contexts", each_us(function, first, out, WINDOW_S));
    for (int i = 0; i < 4; i++) {
        CUcontext other;
        CUstream stream;
        CUdeviceptr there;
#if CUDA_VERSION >= 13000
        NEED(cuCtxCreate(&other, nullptr, 0, 0));
#else
        NEED(cuCtxCreate(&other, 0, 0));
#endif
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuMemAlloc(&there, 512));
        printf(" %.3f", each_us(loaded(words[1]), stream, there, WINDOW_S));
        NEED(cuCtxSetCurrent(context));
    }
    printf("  first %.3f\n", each_us(function, first, out, WINDOW_S));
    return 0;
}
