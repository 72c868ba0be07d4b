// E12: a program with a static CUDA runtime that launches known numbers of kernels each way, and asks what was seen of them.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

__global__ void add(int *where) { atomicAdd(where, 1); }

#define NEED(call) do { cudaError_t need = (call); if (need) { printf("FAIL  %s: %s\n", #call, cudaGetErrorName(need)); exit(1); } } while (0)

static void (*launches_seen)(unsigned long *);
static unsigned long before[6];

static void show(const char *what, int made)
{
    unsigned long now[6];
    NEED(cudaDeviceSynchronize());
    launches_seen(now);
    unsigned long kernels = now[0] - before[0] + now[1] - before[1] + now[2] - before[2];
    printf("FACT  %-44s made %4d  seen: cuLaunchKernel %lu, Ex %lu, cooperative %lu, graphs %lu%s\n", what, made, now[0] - before[0],
           now[1] - before[1], now[2] - before[2], now[3] - before[3], kernels + now[3] - before[3] == (unsigned long)made ? "" : "  DIFFERENT");
    launches_seen(before);
}

int main()
{
    const int N = 100;
    int *where, found = 0;
    launches_seen = (void (*)(unsigned long *))dlsym(RTLD_DEFAULT, "launches_seen");
    if (!launches_seen) return printf("FAIL  count.so is not preloaded\n"), 1;
    NEED(cudaMalloc(&where, 4));
    NEED(cudaMemset(where, 0, 4));
    launches_seen(before);
    for (int i = 0; i < N; i++) add<<<1, 1>>>(where);
    show("static cudart, <<<>>>", N);
    cudaStream_t stream;
    NEED(cudaStreamCreate(&stream));
    for (int i = 0; i < N; i++) add<<<1, 1, 0, stream>>>(where);
    show("static cudart, <<<>>> on a stream", N);
    void *arguments[] = {&where};
    for (int i = 0; i < N; i++) NEED(cudaLaunchCooperativeKernel((void *)add, dim3(1), dim3(1), arguments, 0, stream));
    show("static cudart, cudaLaunchCooperativeKernel", N);
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    for (int i = 0; i < N; i++) NEED(cudaLaunchKernelExC(&config, (void *)add, arguments));
    show("static cudart, cudaLaunchKernelExC", N);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 10; i++) add<<<1, 1, 0, stream>>>(where);
    NEED(cudaStreamEndCapture(stream, &graph));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
    show("static cudart, 10 launches captured", 10);
    for (int i = 0; i < N; i++) NEED(cudaGraphLaunch(exec, stream));
    show("static cudart, cudaGraphLaunch", N);
    NEED(cudaMemcpy(&found, where, 4, cudaMemcpyDeviceToHost));
    printf("%s  the kernels themselves counted %d, made %d\n", found == 4 * N + 10 * N ? "FACT" : "FAIL", found, 14 * N);
    return 0;
}
