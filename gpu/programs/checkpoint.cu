// The driver's own checkpoint of another process: its memory goes to the host, and comes back.
//
//   checkpoint PID TIMES                    all four steps, so often: what each took, in seconds; a step that fails ends it
//   checkpoint PID lock|out|in|unlock       one step: what the driver answered, and what it took
//
// Prints one line of JSON. That process goes on afterwards. Needs a driver of 570 or later, and the rights to trace the process.
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <time.h>

static const unsigned LOCK_WITHIN_MS = 10000, LOCK_ALONE_WITHIN_MS = 3000;
static const int VERSION = 12080; // of the interface below

static const char *name_of(CUresult status)
{
    const char *name = "an unknown error";
    cuGetErrorName(status, &name);
    return name;
}

static void need(CUresult status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "checkpoint: %s: %s\n", what, name_of(status));
    exit(1);
}

template <typename Call> static Call found(const char *name)
{
    void *call = nullptr;
    CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult status = cuGetProcAddress(name, &call, VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &why);
    if (status || !call) fprintf(stderr, "checkpoint: this driver has no %s (it answers %d)\n", name, (int)why), exit(4);
    return (Call)call;
}

static double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int given, char **arguments)
{
    if (given != 3) return fprintf(stderr, "checkpoint PID TIMES|lock|out|in|unlock\n"), 2;
    std::string step = arguments[2];
    int pid = atoi(arguments[1]), times = atoi(arguments[2]);
    need(cuInit(0), "cuInit");
    auto lock = found<CUresult (*)(int, CUcheckpointLockArgs *)>("cuCheckpointProcessLock");
    auto out = found<CUresult (*)(int, CUcheckpointCheckpointArgs *)>("cuCheckpointProcessCheckpoint");
    auto in = found<CUresult (*)(int, CUcheckpointRestoreArgs *)>("cuCheckpointProcessRestore");
    auto unlock = found<CUresult (*)(int, CUcheckpointUnlockArgs *)>("cuCheckpointProcessUnlock");
    if (!times) {
        CUcheckpointLockArgs locking = {};
        locking.timeoutMs = LOCK_ALONE_WITHIN_MS;
        CUcheckpointCheckpointArgs going = {};
        CUcheckpointRestoreArgs coming = {};
        CUcheckpointUnlockArgs unlocking = {};
        double began = now_s();
        CUresult answer;
        if (step == "lock") answer = lock(pid, &locking);
        else if (step == "out") answer = out(pid, &going);
        else if (step == "in") answer = in(pid, &coming);
        else if (step == "unlock") answer = unlock(pid, &unlocking);
        else return fprintf(stderr, "checkpoint: no such step: %s\n", step.c_str()), 2;
        printf("{\"step\": \"%s\", \"answer\": \"%s\", \"s\": %.6f}\n", step.c_str(), name_of(answer), now_s() - began);
        return 0;
    }
    printf("{\"times\": [");
    for (int i = 0; i < times; i++) {
        CUcheckpointLockArgs locking = {};
        locking.timeoutMs = LOCK_WITHIN_MS;
        CUcheckpointCheckpointArgs going = {};
        CUcheckpointRestoreArgs coming = {};
        CUcheckpointUnlockArgs unlocking = {};
        double began = now_s();
        need(lock(pid, &locking), "cuCheckpointProcessLock");
        double locked = now_s();
        need(out(pid, &going), "cuCheckpointProcessCheckpoint");
        double is_out = now_s();
        need(in(pid, &coming), "cuCheckpointProcessRestore");
        double is_in = now_s();
        need(unlock(pid, &unlocking), "cuCheckpointProcessUnlock");
        printf("%s{\"lock_s\": %.6f, \"out_s\": %.6f, \"in_s\": %.6f, \"unlock_s\": %.6f}", i ? ", " : "", locked - began, is_out - locked,
               is_in - is_out, now_s() - is_in);
    }
    printf("]}\n");
    return 0;
}
