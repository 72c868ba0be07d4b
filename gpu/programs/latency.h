// Requests of a service, and how long each takes from its first call of the GPU to its completion. What a request does is the
// program's; when requests come, what is said of them beforehand and what is written down is here.
//
// Each line of input is one order:
//   FILE SHAPE COUNT RATE HINTS PREPARES_US OFF_US SPREAD_US MAX_S NUMBER
// COUNT requests arrive at RATE a second on average: "steady", "poisson", or in "bursts" of ten at once. Each is prepared for PREPARES_US
// after it arrived, then the GPU is called. With HINTS, the SDK is told at the arrival that the GPU is called in PREPARES_US
// less OFF_US: that it is off by OFF_US, and by up to SPREAD_US more or less, by chance for each request. None but the first begins
// when MAX_S have passed, so fewer than COUNT may be served. FILE gets 64-bit floats: one for each that was, in microseconds; after
// all of them one for the beginning of each, in nanoseconds of the monotonic clock; then one for the time from each one's arrival
// to its completion, in microseconds. Answered by a line of JSON with NUMBER in it, from which chance is drawn as well.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sched.h>
#include <string>
#include <time.h>
#include <vector>

namespace latency {

static const int64_t LATE = 50000; // ns behind its time a request may begin

static inline int64_t now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// Sleeps for most of it: a core that always spins is slower than one that rests.
static inline void wait_until(int64_t when)
{
    const int64_t SPIN = 300000;
    int64_t rest = when - now_ns() - SPIN;
    if (rest > 0) {
        timespec t = {time_t(rest / 1000000000), long(rest % 1000000000)};
        nanosleep(&t, nullptr);
    }
    while (now_ns() < when) {}
}

struct Order {
    char file[1024], shape[32];
    long count;
    double rate, prepares_us, off_us, spread_us, max_s;
    int hints;
    unsigned number;
};

static inline bool read_order(Order &order)
{
    char line[2048];
    if (!fgets(line, sizeof line, stdin)) return false;
    if (sscanf(line, "%1023s %31s %ld %lf %d %lf %lf %lf %lf %u", order.file, order.shape, &order.count, &order.rate, &order.hints,
               &order.prepares_us, &order.off_us, &order.spread_us, &order.max_s, &order.number) != 10)
        return fprintf(stderr, "not an order: %s", line), exit(2), false;
    return true;
}

// When requests arrive, in nanoseconds from the first on.
static inline std::vector<int64_t> arrivals(const Order &order)
{
    std::mt19937_64 random(order.number);
    std::exponential_distribution<double> gap(1.0);
    const int BURST = 10;
    std::string shape = order.shape;
    std::vector<int64_t> found;
    double at = 0, mean = 1e9 / order.rate;
    for (long n = 0; n < order.count; n++) {
        found.push_back(int64_t(at));
        if (shape == "steady") at += mean;
        else if (shape == "poisson") at += mean * gap(random);
        else if (shape == "bursts") at += (n + 1) % BURST ? 0 : BURST * mean * gap(random);
        else fprintf(stderr, "no such shape: %s\n", order.shape), exit(2);
    }
    return found;
}

// What a program does at each point of a request.
struct Service {
    std::function<void()> arrives;      // if there is anything to do then
    std::function<void()> request;      // on the GPU, until it is done
    std::function<void(int64_t)> hint;  // to the SDK: the GPU is called in so many nanoseconds
    std::function<void()> begin, end;   // to the SDK: a request
};

// Serves orders until the input ends.
static inline void serve(const Service &service)
{
    Order order;
    while (read_order(order)) {
        std::vector<double> took, began, whole;
        long late = 0;
        auto when = arrivals(order);
        std::mt19937_64 random(~uint64_t(order.number)); // its own: when requests arrive does not hang on it
        std::uniform_real_distribution<double> spread(-order.spread_us, order.spread_us);
        int64_t prepares = int64_t(order.prepares_us * 1e3), most = int64_t(order.max_s * 1e9);
        int64_t first = now_ns() + 20000000, free_at = 0;
        for (int64_t at : when) {
            if (!took.empty() && now_ns() - first > most) break;
            // One that arrives while another is served is prepared meanwhile, and follows at once.
            int64_t arrives = first + at, calls = std::max(arrives + prepares, free_at);
            wait_until(std::max(arrives, free_at));
            int64_t off = int64_t((order.off_us + spread(random)) * 1e3);
            if (order.hints) service.hint(std::max<int64_t>(0, calls - now_ns() - off));
            if (service.arrives) service.arrives();
            wait_until(calls);
            if (order.hints) service.begin();
            int64_t begun = now_ns();
            late += begun - calls > LATE;
            service.request();
            int64_t ended = now_ns();
            if (order.hints) service.end();
            took.push_back((ended - begun) / 1e3);
            began.push_back(double(begun));
            whole.push_back((ended - arrives) / 1e3);
            free_at = now_ns();
        }
        size_t count = took.size();
        took.insert(took.end(), began.begin(), began.end());
        took.insert(took.end(), whole.begin(), whole.end());
        FILE *file = fopen(order.file, "wb");
        if (!file || fwrite(took.data(), sizeof took[0], took.size(), file) != took.size() || fclose(file))
            return perror(order.file), exit(1);
        printf("{\"order\": %u, \"requests\": %zu, \"late\": %ld}\n", order.number, count, late);
        fflush(stdout);
    }
}

static inline void stay_on(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity");
}

} // namespace latency
