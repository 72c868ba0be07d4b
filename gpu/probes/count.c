// E12: counts the launches that a preloaded library sees: exported names, dlsym, cuGetProcAddress.
//
// Preloaded without the driver's SONAME: the program opens the real driver and asks dlsym, which is this one's. A launch that
// goes through an export table is not seen. `launches_seen` is for the program itself, by name, at any time.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KERNEL, KERNEL_EX, COOPERATIVE, GRAPH, HOST, LAUNCHES };
static const char *const NAMES[LAUNCHES] = {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch", "cuLaunchHostFunc"};
static void *real[LAUNCHES][2]; // of the legacy and of the per-thread default stream
static atomic_ulong seen[LAUNCHES];
static atomic_ulong tables;
static char table_names[16][40];
static void *(*real_dlsym)(void *, const char *);
static void *real_resolver, *real_resolver_old, *real_table;

static void *next_dlsym(void)
{
    if (!real_dlsym) {
        real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real_dlsym) real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!real_dlsym) abort();
    }
    return real_dlsym;
}

static void *driver(const char *symbol)
{
    static void *library;
    next_dlsym();
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? real_dlsym(library, symbol) : 0;
}

static void *target(int which, int per_thread)
{
    if (!real[which][per_thread]) {
        char symbol[64];
        snprintf(symbol, sizeof symbol, "%s%s", NAMES[which], per_thread ? "_ptsz" : "");
        real[which][per_thread] = driver(symbol);
    }
    return real[which][per_thread];
}

#define LAUNCH(NAME, which, DECLARED, PASSED)                                                             \
    CUresult NAME DECLARED                                                                                \
    {                                                                                                     \
        atomic_fetch_add_explicit(&seen[which], 1, memory_order_relaxed);                                 \
        return ((CUresult(*) DECLARED)target(which, 0)) PASSED;                                           \
    }                                                                                                     \
    CUresult NAME##_ptsz DECLARED                                                                         \
    {                                                                                                     \
        atomic_fetch_add_explicit(&seen[which], 1, memory_order_relaxed);                                 \
        return ((CUresult(*) DECLARED)target(which, 1)) PASSED;                                           \
    }
#define EDGES unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g
LAUNCH(cuLaunchKernel, KERNEL, (CUfunction k, EDGES, CUstream s, void **p, void **x), (k, a, b, c, d, e, f, g, s, p, x))
LAUNCH(cuLaunchKernelEx, KERNEL_EX, (const CUlaunchConfig *n, CUfunction k, void **p, void **x), (n, k, p, x))
LAUNCH(cuLaunchCooperativeKernel, COOPERATIVE, (CUfunction k, EDGES, CUstream s, void **p), (k, a, b, c, d, e, f, g, s, p))
LAUNCH(cuGraphLaunch, GRAPH, (CUgraphExec x, CUstream s), (x, s))
LAUNCH(cuLaunchHostFunc, HOST, (CUstream s, CUhostFn f, void *d), (s, f, d))

static void *const OURS[LAUNCHES][2] = {
    {cuLaunchKernel, cuLaunchKernel_ptsz},
    {cuLaunchKernelEx, cuLaunchKernelEx_ptsz},
    {cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz},
    {cuGraphLaunch, cuGraphLaunch_ptsz},
    {cuLaunchHostFunc, cuLaunchHostFunc_ptsz},
};

#undef cuGetProcAddress
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    unsigned long n = atomic_fetch_add(&tables, 1);
    if (n < 16)
        for (int i = 0; i < 16; i++) snprintf(table_names[n] + 2 * i, 3, "%02x", (unsigned char)id->bytes[i]);
    if (!real_table) real_table = driver("cuGetExportTable");
    return ((CUresult(*)(const void **, const CUuuid *))real_table)(table, id);
}

CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *replaced(const char *symbol, void *found, cuuint64_t flags)
{
    int per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    for (int i = 0; i < LAUNCHES; i++)
        if (!strcmp(symbol, NAMES[i])) {
            real[i][per_thread] = found;
            return OURS[i][per_thread];
        }
    if (!strcmp(symbol, "cuGetExportTable")) return real_table = found, cuGetExportTable;
    return found;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (!real_resolver) real_resolver = driver("cuGetProcAddress_v2");
    CUresult code = ((CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))real_resolver)(symbol, found, version, flags, status);
    if (code || !found || !*found) return code;
    if (!strcmp(symbol, "cuGetProcAddress"))
        *found = version >= 12000 ? (real_resolver = *found, (void *)cuGetProcAddress_v2) : (real_resolver_old = *found, (void *)cuGetProcAddress);
    else
        *found = replaced(symbol, *found, flags);
    return code;
}

CUresult cuGetProcAddress(const char *symbol, void **found, int version, cuuint64_t flags)
{
    if (!real_resolver_old) real_resolver_old = driver("cuGetProcAddress");
    CUresult code = ((CUresult(*)(const char *, void **, int, cuuint64_t))real_resolver_old)(symbol, found, version, flags);
    if (!code && found && *found) *found = replaced(symbol, *found, flags);
    return code;
}

void *dlsym(void *restrict handle, const char *restrict symbol)
{
    next_dlsym();
    if (symbol[0] == 'c' && symbol[1] == 'u') {
        if (!strcmp(symbol, "cuGetProcAddress_v2")) return cuGetProcAddress_v2;
        if (!strcmp(symbol, "cuGetProcAddress")) return cuGetProcAddress;
        if (!strcmp(symbol, "cuGetExportTable")) return cuGetExportTable;
        for (int i = 0; i < LAUNCHES; i++)
            if (!strncmp(symbol, NAMES[i], strlen(NAMES[i]))) {
                const char *rest = symbol + strlen(NAMES[i]);
                if (!*rest) return OURS[i][0];
                if (!strcmp(rest, "_ptsz")) return OURS[i][1];
            }
    }
    return real_dlsym(handle, symbol); // the last thing done: a jump, so that RTLD_NEXT still means the caller's next
}

// All launches seen so far: kernels by each of the three calls, graphs, host functions, export tables taken.
void launches_seen(unsigned long *into)
{
    for (int i = 0; i < LAUNCHES; i++) into[i] = atomic_load(&seen[i]);
    into[LAUNCHES] = atomic_load(&tables);
}

__attribute__((destructor)) static void at_end(void)
{
    unsigned long all = 0;
    for (int i = 0; i < LAUNCHES; i++) all += atomic_load(&seen[i]);
    if (!all && !atomic_load(&tables)) return;
    fprintf(stderr, "      seen in process %d:", getpid());
    for (int i = 0; i < LAUNCHES; i++) fprintf(stderr, " %s %lu", NAMES[i], atomic_load(&seen[i]));
    fprintf(stderr, ", export tables %lu:", atomic_load(&tables));
    for (unsigned long i = 0; i < 16 && i < atomic_load(&tables); i++) fprintf(stderr, " %.8s", table_names[i]);
    fprintf(stderr, "\n");
}
