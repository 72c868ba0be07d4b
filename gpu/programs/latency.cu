// A service whose request is one short kernel.
//
//   latency [CORE]    serves the orders on its input: see latency.h
#include "latency.h"
#include <cuda_runtime.h>
#include <rota.h>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "latency.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const int FULL = 1056;  // blocks of 256 threads that fill an H200 once
static const int TURNS = 2000; // of the loop: some 60 us there

__global__ void compute(int turns, float *out)
{
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 1.1f;
    for (int i = 0; i < turns; i++) a = fmaf(a, b, c), d = fmaf(d, b, a), c = fmaf(c, b, d);
    if (a == 123.f) *out = a + d + c; // never, but the compiler cannot know
}

int main(int given, char **arguments)
{
    float *out;
    cudaStream_t stream;
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NEED(cudaMalloc(&out, 4));
    auto request = [&] {
        compute<<<FULL, 256, 0, stream>>>(TURNS, out);
        NEED(cudaStreamSynchronize(stream));
    };
    for (int n = 0; n < 50; n++) request();
    if (given > 1) latency::stay_on(arguments[1]);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    rota_request served;
    latency::serve(request, {[](int64_t in_ns) { rota_hint(in_ns); }, [&] { rota_request_begin(&served, 0, 0); }, [&] { rota_request_end(&served); }});
    return 0;
}
