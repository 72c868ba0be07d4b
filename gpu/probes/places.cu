// E21: whether the speed of a copy depends on which of the host's memory, or which of the GPU's, it is.
//
//   places [HOST_GIB [REGION_MIB [PASSES [KEEPER]]]]
//
// Host memory as a daemon's arena has it (a memfd, touched by several threads, registered in steps of 64 MiB), in regions; or the
// arena itself, of the keeper with this process number, as far as HOST_GIB goes: what is in there is written over. Of each
// region: copies in alone, out alone, and in while another region, half of the memory away, is written. Then one region of the host
// with many of the GPU. All of it in several passes: what depends on the place is the same in each, what depends on the moment is not.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { cudaError_t need = (call); if (need) { fprintf(stderr, "places.cu:%d %s: %s\n", __LINE__, #call, cudaGetErrorName(need)); exit(1); } } while (0)

static const size_t STEP = 64 << 20;
static const size_t PAGE = 4096;
static const int TOUCHING = 8; // threads
static const int OF_THE_GPU = 48; // regions

static cudaStream_t out, in;
static cudaEvent_t out_began, out_ended, in_began, in_ended;

struct Rates { float out, in; }; // GB/s

static Rates copies(char *to_host, char *from_device, char *to_device, char *from_host, size_t bytes)
{
    NEED(cudaEventRecord(out_began, out));
    NEED(cudaEventRecord(in_began, in));
    for (size_t at = 0; at < bytes; at += STEP) {
        if (to_host) NEED(cudaMemcpyAsync(to_host + at, from_device + at, STEP, cudaMemcpyDeviceToHost, out));
        if (from_host) NEED(cudaMemcpyAsync(to_device + at, from_host + at, STEP, cudaMemcpyHostToDevice, in));
    }
    NEED(cudaEventRecord(out_ended, out));
    NEED(cudaEventRecord(in_ended, in));
    NEED(cudaDeviceSynchronize());
    float out_ms, in_ms;
    NEED(cudaEventElapsedTime(&out_ms, out_began, out_ended));
    NEED(cudaEventElapsedTime(&in_ms, in_began, in_ended));
    return {to_host ? bytes / out_ms / 1e6f : 0, from_host ? bytes / in_ms / 1e6f : 0};
}

typedef std::vector<std::vector<float>> Passes; // of each region, its rate in each pass

static float middle(std::vector<float> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static void tell(const char *what, const Passes &rates)
{
    std::vector<float> of_regions;
    float moment = 0;
    for (auto &passes : rates) {
        of_regions.push_back(middle(passes));
        moment = std::max(moment, *std::max_element(passes.begin(), passes.end()) - *std::min_element(passes.begin(), passes.end()));
    }
    printf("%s: by region", what);
    for (float rate : of_regions) printf(" %.1f", rate);
    std::sort(of_regions.begin(), of_regions.end());
    printf("\n%s: least %.2f, p10 %.2f, p50 %.2f, p90 %.2f, most %.2f GB/s; one region differs between passes by %.2f at most\n", what, of_regions.front(),
           of_regions[of_regions.size() / 10], middle(of_regions), of_regions[of_regions.size() * 9 / 10], of_regions.back(), moment);
}

static char *mapped(int file, size_t bytes)
{
    void *place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) perror("mmap"), exit(1);
    return (char *)place;
}

// Registers memory and adds its regions, until there are as many bytes.
static void add_regions(std::vector<char *> &places, char *memory, size_t bytes, size_t region, size_t most)
{
    for (size_t at = 0; at + region <= bytes && (places.size() + 1) * region <= most; at += region) {
        for (size_t more = 0; more < region; more += STEP) NEED(cudaHostRegister(memory + at + more, STEP, cudaHostRegisterDefault));
        places.push_back(memory + at);
    }
}

int main(int given, char **arguments)
{
    size_t bytes = (size_t)((given > 1 ? atof(arguments[1]) : 48) * (1 << 30)) / STEP * STEP;
    size_t region = (given > 2 ? (size_t)atoi(arguments[2]) << 20 : 512 << 20) / STEP * STEP;
    int passes = given > 3 ? atoi(arguments[3]) : 3;
    if (!region || passes < 1 || bytes < 2 * region) return fprintf(stderr, "places [HOST_GIB [REGION_MIB [PASSES [KEEPER]]]]\n"), 2;
    std::vector<char *> places;
    if (given > 4) {
        std::string folder = std::string("/proc/") + arguments[4] + "/fd";
        DIR *files = opendir(folder.c_str());
        if (!files) return perror(folder.c_str()), 1;
        while (dirent *entry = readdir(files)) {
            std::string path = folder + "/" + entry->d_name;
            char name[256] = "";
            struct stat size;
            if (readlink(path.c_str(), name, sizeof name - 1) < 0 || !strstr(name, "memfd:rota-arena")) continue;
            int file = open(path.c_str(), O_RDWR);
            if (file < 0 || fstat(file, &size)) return perror(path.c_str()), 1;
            add_regions(places, mapped(file, size.st_size), size.st_size, region, bytes);
        }
    } else {
        int file = memfd_create("places", 0);
        if (file < 0 || ftruncate(file, bytes)) return perror("memfd"), 1;
        char *host = mapped(file, bytes);
        madvise(host, bytes, MADV_HUGEPAGE);
        std::vector<std::thread> threads;
        for (int n = 0; n < TOUCHING; n++)
            threads.emplace_back([=] {
                for (size_t at = n * PAGE; at < bytes; at += TOUCHING * PAGE) ((volatile char *)host)[at] = 1;
            });
        for (std::thread &thread : threads) thread.join();
        add_regions(places, host, bytes, region, bytes);
    }
    size_t regions = places.size();
    if (regions < 2) return fprintf(stderr, "places: %zu regions, at least two are needed\n", regions), 1;
    char *device;
    NEED(cudaMalloc(&device, (OF_THE_GPU + 1) * region));
    NEED(cudaMemset(device, 1, (OF_THE_GPU + 1) * region));
    NEED(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&out_began, &out_ended, &in_began, &in_ended}) NEED(cudaEventCreate(event));
    copies(places[0], device, device + region, places[1], region);

    Passes in_alone(regions), out_alone(regions), in_beside(regions), out_beside(regions);
    for (int pass = 0; pass < passes; pass++)
        for (size_t n = 0; n < regions; n++) {
            char *here = places[n], *there = places[(n + regions / 2) % regions];
            in_alone[n].push_back(copies(nullptr, nullptr, device, here, region).in);
            out_alone[n].push_back(copies(here, device, nullptr, nullptr, region).out);
            Rates both = copies(there, device, device + region, here, region);
            in_beside[n].push_back(both.in), out_beside[(n + regions / 2) % regions].push_back(both.out);
        }
    tell("in alone", in_alone), tell("out alone", out_alone), tell("in beside out", in_beside), tell("out beside in", out_beside);
    Passes in_gpu(OF_THE_GPU), in_gpu_beside(OF_THE_GPU);
    for (int pass = 0; pass < passes; pass++)
        for (int n = 0; n < OF_THE_GPU; n++) {
            char *there = device + (size_t)(n + 1) * region;
            in_gpu[n].push_back(copies(nullptr, nullptr, there, places[0], region).in);
            in_gpu_beside[n].push_back(copies(places[1], device, there, places[0], region).in);
        }
    tell("by the GPU's region: in alone", in_gpu), tell("by the GPU's region: in beside out", in_gpu_beside);
    fflush(stdout);
    _exit(0);
}
