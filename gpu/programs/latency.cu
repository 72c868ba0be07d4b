// A service whose request is one short kernel.
//
//   latency [core=N] [turns=N] [gib=N] [copied=1] [sends=1]    serves the orders on its input: see latency.h
//
// The thread stays on the core, if one is given. The kernel has so many turns of its loop. With gib, the service has so much memory,
// another part of which is read by each request. With copied=1 a request's input is sent to the GPU when it arrives, with sends=1
// right before its kernel, as part of it.
#include "latency.h"
#include <cuda_runtime.h>
#include <rota.h>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "latency.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const int FULL = 1056;  // blocks of 256 threads that fill an H200 once
static const int TURNS = 2000; // of the loop: some 60 us there
static const size_t INPUT_BYTES = 64 << 10;
static const size_t GIB = 1ull << 30;

__global__ void compute(int turns, const float *in, float *out)
{
    float a = threadIdx.x + 0.f * *in, b = 1.0001f, c = 0.5f, d = 1.1f; // read, whatever it is
    for (int i = 0; i < turns; i++) a = fmaf(a, b, c), d = fmaf(d, b, a), c = fmaf(c, b, d);
    if (a == 123.f) *out = a + d + c; // never, but the compiler cannot know
}

int main(int given, char **arguments)
{
    int core = -1, turns = TURNS, gib = 0, copied = 0, sends = 0;
    for (int n = 1; n < given; n++) {
        bool known = sscanf(arguments[n], "core=%d", &core) == 1 || sscanf(arguments[n], "turns=%d", &turns) == 1 ||
                     sscanf(arguments[n], "gib=%d", &gib) == 1 || sscanf(arguments[n], "copied=%d", &copied) == 1 ||
                     sscanf(arguments[n], "sends=%d", &sends) == 1;
        if (!known) return fprintf(stderr, "latency [core=N] [turns=N] [gib=N] [copied=1] [sends=1], not %s\n", arguments[n]), 2;
    }
    float *out, *input;
    void *host;
    std::vector<float *> pieces;
    cudaStream_t stream;
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NEED(cudaMalloc(&out, 4));
    NEED(cudaMalloc(&input, INPUT_BYTES));
    NEED(cudaMemset(input, 0, INPUT_BYTES));
    NEED(cudaMallocHost(&host, INPUT_BYTES));
    memset(host, 0, INPUT_BYTES);
    for (int n = 0; n < gib; n++) {
        float *piece;
        NEED(cudaMalloc(&piece, GIB));
        NEED(cudaMemset(piece, 0, GIB));
        pieces.push_back(piece);
    }
    NEED(cudaDeviceSynchronize());
    size_t served = 0;
    auto send = [&] { NEED(cudaMemcpyAsync(input, host, INPUT_BYTES, cudaMemcpyHostToDevice, stream)); };
    auto request = [&] {
        if (sends) send();
        const float *in = pieces.empty() ? input : pieces[served++ % pieces.size()];
        compute<<<FULL, 256, 0, stream>>>(turns, in, out);
        NEED(cudaGetLastError());
        NEED(cudaStreamSynchronize(stream));
    };
    for (int n = 0; n < 50; n++) request();
    if (core >= 0) latency::stay_on(core);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    rota_request open;
    latency::Service service;
    service.request = request;
    service.hint = [](int64_t in_ns) { rota_hint(uint64_t(in_ns)); };
    service.begin = [&] { rota_request_begin(&open, 0, 0); };
    service.end = [&] { rota_request_end(&open); };
    if (copied) service.arrives = send;
    latency::serve(service);
    return 0;
}
