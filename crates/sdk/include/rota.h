/* What a program can say to rota: that requests come, begin and end, and that it gives way for a while.
 *
 * Link with -lrota (librota.so, or librota.a with -ldl -lpthread -lm). Nothing here needs CUDA. Without a daemon, or outside
 * of `rota run`, every function does nothing but time requests, and says so once on standard error (not with ROTA_QUIET=1).
 *
 * All functions may be called from any thread at any time. None aborts, throws, or changes errno; none waits but rota_set,
 * which asks the daemon. Whatever they return, the program computes the same.
 *
 * There is one class for a whole process: latency-critical or best-effort is its job's (`rota run --class lc`), and what one
 * thread says of its requests is said of all. A process that serves requests and trains at the same time is two processes.
 *
 * The interface has a version, the upper 16 bits of rota_version(): within one, functions and fields are only added, fields
 * at the end of their structures.
 */
#ifndef ROTA_H
#define ROTA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
enum {
    ROTA_OK = 0,           /* the daemon hears it */
    ROTA_NO_DAEMON = 1,    /* there is none for this process: it means nothing */
    ROTA_NOT_CRITICAL = 2, /* the job is best-effort: it means nothing */
    ROTA_DROPPED = 3,      /* the daemon's queue is full: it is lost, and counted */
    ROTA_REFUSED = 4,      /* it is not allowed */
    ROTA_INVALID = 5,      /* it makes no sense: an end without a begin, a class that is none */
    ROTA_NOT_YET = 6,      /* the process has not used the GPU yet: it means nothing */
    ROTA_OFF = 7           /* ROTA_HINTS=off: hints mean nothing */
};

/* The version of this interface in the upper 16 bits, of the library in the lower: major << 8 | minor. */
uint32_t rota_version(void);

/* A request arrived, and its kernels follow in about so many nanoseconds: best-effort work makes room just before. A hint
 * that nothing follows has a price: after a few, hints are not listened to for a while. Whatever else goes to the GPU before
 * them, as a copy of the input, is taken for the request: hint then for that. */
int rota_hint(uint64_t in_ns);

/* A request that is being served. Nothing in it is of interest to a program. */
typedef struct rota_request {
    uint64_t began_ns;
    uint64_t slo_ns;
    uint64_t reserved[2];
} rota_request;

/* A request begins: its kernels follow in about in_ns, or at once if that is 0. It is to be served within slo_ns, or within
 * what its job's SLO says if that is 0. The latency that is counted begins here. */
int rota_request_begin(rota_request *request, uint64_t in_ns, uint64_t slo_ns);

/* It is served: its results are there, so nothing of it is on the GPU any more. Others may have the GPU at once. */
int rota_request_end(rota_request *request);

/* A phase begins in which the program gives way to others as soon as it has no work for the GPU, and ends: while it writes
 * a checkpoint, say. Phases may lie within each other. `rota describe` shows the name of the innermost, or its first 32 bytes. */
int rota_phase_begin(const char *name);
int rota_phase_end(void);

/* Classes. */
enum {
    ROTA_CLASS_AS_IT_IS = -1,
    ROTA_BEST_EFFORT = 0,
    ROTA_LATENCY_CRITICAL = 1
};

/* Asks for another class, and for another weight unless that is 0, for the job of this process, as `rota set` does: all of
 * the job's processes have them. Waits for the answer. Why it is refused is written to reason, if that is not null, in at
 * most reason_bytes bytes with a zero at the end. */
int rota_set(int cls, uint32_t weight, char *reason, size_t reason_bytes);

/* What there is to know. Times are of requests of this process that have ended; quantiles are exact to 1.6%. */
typedef struct rota_statistics {
    uint64_t requests;        /* that have ended */
    uint64_t p50_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
    uint64_t max_ns;
    uint64_t slo_missed;      /* requests that took longer than their SLO */
    uint64_t slo_ns;          /* the job's SLO; 0 if it has none */
    uint64_t requests_open;   /* that are being served, by the shim's count */
    uint64_t dropped;         /* words that did not reach the daemon */
    uint64_t warm_ups;        /* kernels launched to load the context before a request */
    uint64_t warm_ups_failed; /* and that could not be */
    uint32_t tenant;          /* 1 if a daemon shares this process's GPU */
    uint32_t critical;        /* 1 if its job is latency-critical */
} rota_statistics;

/* Writes as much of it as there is room for, and returns how many bytes that is: sizeof *statistics, or less with a library
 * that is older than this header. */
size_t rota_statistics_get(rota_statistics *statistics, size_t bytes);

/* Latencies are counted anew from now on, here: what `rota describe` shows stays. */
int rota_statistics_reset(void);

#ifdef __cplusplus
}
#endif

#endif
