/* A service in C: so many requests, each prepared for 5 ms before its work on the GPU.
 *
 *     cc -I include examples/serve.c -L DIR -lrota -ldl -Wl,-rpath,DIR -o serve
 *     rota run --class lc --slo 20ms -- ./serve 100
 */
#include "gpu.h"
#include "rota.h"

int main(int count, char **arguments) {
    long requests = count > 1 ? atol(arguments[1]) : 100;
    rota_statistics seen;
    gpu_begin();
    for (long number = 0; number < requests; number++) {
        rota_request request;
        rota_request_begin(&request, 5000000, 0);
        sleep_ms(5); /* read the request, prepare its input */
        gpu_work((int)number);
        rota_request_end(&request);
        sleep_ms(5); /* until the next one */
    }
    rota_statistics_get(&seen, sizeof seen);
    printf("requests %llu missed %llu tenant %u critical %u slo_ns %llu warm_ups %llu\n",
           (unsigned long long)seen.requests, (unsigned long long)seen.slo_missed, seen.tenant, seen.critical,
           (unsigned long long)seen.slo_ns, (unsigned long long)seen.warm_ups);
    fflush(stdout);
    if (count > 2) getchar(); /* stay, so that somebody can look */
    return 0;
}
