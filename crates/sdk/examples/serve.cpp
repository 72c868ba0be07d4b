// A service in C++, and a phase in which it gives way.
//
//     c++ -std=c++11 -I include examples/serve.cpp -L DIR -lrota -ldl -Wl,-rpath,DIR -o serve
//     rota run --class lc -- ./serve 100
#include "gpu.h"
#include "rota.hpp"

int main(int count, char **arguments) {
    const long requests = count > 1 ? std::atol(arguments[1]) : 100;
    gpu_begin();
    for (long number = 0; number < requests; number++) {
        rota::hint(std::chrono::milliseconds(5));
        sleep_ms(5);
        {
            rota::Request request(rota::Duration::zero(), std::chrono::seconds(10));
            gpu_work(static_cast<int>(number));
        }
        sleep_ms(5);
    }
    {
        rota::Phase phase("checkpoint");
        sleep_ms(1);
    }
    std::string reason;
    const int refused = rota::set(ROTA_CLASS_AS_IT_IS, 1000000, &reason);
    const rota_statistics seen = rota::statistics();
    std::printf("requests %llu missed %llu tenant %u critical %u set %d %s\n",
                static_cast<unsigned long long>(seen.requests), static_cast<unsigned long long>(seen.slo_missed),
                seen.tenant, seen.critical, refused, reason.c_str());
    std::fflush(stdout);
    if (count > 2) std::getchar();
    return 0;
}
