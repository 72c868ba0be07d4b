// Can a service's context be loaded while the freeze that makes room for it is still under way?
//
//   early              takes about a minute; the figures need five cores that are free
//
// Two processes: BE fills the GPU with kernels of half a millisecond, on the shortest time slice; LC, which is this one, has a request
// of one short kernel every 5 ms. A time ahead of each request, the lead, a thread begins to freeze BE's compute channels, and another
// launches a warm-up on the request's stream: one thread that writes one word, for which the GPU must load LC's context. It does so
// when the freeze has returned, as rota does, or so many microseconds after the freeze was begun, or not at all. The request goes when
// its time comes, whether the freeze has returned or not; then BE is thawed. For each way and lead: how long the request took, and what
// BE keeps of its rate alone; for each way, counted from the freeze's begin: when the freeze returned, and when the warm-up's word was
// there. If the GPU goes over to LC before the freeze returns, a warm-up meanwhile makes do with a shorter lead.
//
// The same at the other end: with one lead and one warm-up, BE is thawed when the request has ended, or so many microseconds after it
// began, while it still has the GPU. If that takes LC nothing, BE is back sooner by what a thaw takes.
//
//   early be MEMORY PIPE     what BE is started with
//
// BE learns its handles by defining `ioctl` in this executable (link with -rdynamic): the driver's library calls it.
#include <cuda.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NEED(call) do { CUresult need = (call); if (need) { const char *name = "?"; cuGetErrorName(need, &name); broke("line %d %s: %s", __LINE__, #call, name); } } while (0)

enum { RM_CONTROL = 0x2a, RM_ALLOC = 0x2b, RM_XFER = 211 };
enum { CLASS_SUBDEVICE = 0x2080, CLASS_GROUP = 0xa06c, LOW_BYTE_CHANNEL = 0x6f, ENGINE_COMPUTE = 1 };
static const uint32_t DISABLE_CHANNELS = 0x2080110b, SET_TIMESLICE = 0xa06c0103, GET_TIMESLICE = 0xa06c0104;
enum { DISABLE_CHANNELS_SIZE = 536, CHANNELS_MAX = 64, OBJECTS_MAX = 512 };

static const int FULL = 1056, THREADS = 256;                         // blocks and their threads that fill an H200 once
static const double BE_KERNEL_US = 540, LC_KERNEL_US = 80;
static const uint64_t BE_SLICE_US = 1, LC_SLICE_US = 5000000;        // so that LC never waits for BE's slice, nor BE cuts LC's kernel
static const int BE_KERNELS = 4;                                     // in one synchronisation
static const int LEADS_US[] = {300, 350, 400, 450, 500, 600, 700, 900};
static const int ROUNDS = 3, REQUESTS = 50, REQUESTS_ALONE = 100;    // so many requests of each cell in each round
static const int64_t US = 1000, MS = 1000 * US, S = 1000 * MS;
static const int64_t PERIOD = 5 * MS, SPREAD = 300 * US;             // requests come so far apart, by chance more or less by SPREAD
static const int64_t BE_LEAST = 2 * MS;                              // BE runs for so long between a thaw and a freeze
static const int64_t LATE = 20 * US;
static const int64_t STUCK = 100 * MS;
static const int STUCK_MAX = 3;                                      // such requests end a cell
static const double WITHIN = 1.05;
static const int64_t HELLO_WITHIN = 30 * S, THREADS_WITHIN = 5 * S;
static const int64_t CELLS_END = 95 * S, PROBE_ENDS = 107 * S, BE_ENDS = 111 * S; // after the begin of the process

static int64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * S + now.tv_nsec;
}

static const int64_t process_began = now_ns();

// Objects of the driver that this process has made.
struct AllocShort { uint32_t root, parent, made, class_; uint64_t parameters; uint32_t size, status; };
struct AllocLong { uint32_t root, parent, made, class_; uint64_t parameters, rights; uint32_t size, flags, status; };
struct Control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
struct Xfer { uint32_t command, size; uint64_t pointer; };
struct Object { int file; uint32_t client, handle, parent, class_, engine; };
static Object objects[OBJECTS_MAX];
static int object_count;
static std::mutex objects_lock;

template <typename Alloc> static void record(int file, const void *argument)
{
    const Alloc *made = (const Alloc *)argument;
    bool channel = (made->class_ & 0xff) == LOW_BYTE_CHANNEL && made->class_ >= 0xa000;
    if (made->status || (!channel && made->class_ != CLASS_SUBDEVICE && made->class_ != CLASS_GROUP)) return;
    const uint32_t *parameters = (const uint32_t *)(uintptr_t)made->parameters;
    uint32_t engine = made->class_ == CLASS_GROUP && parameters ? parameters[3] : 0;
    std::lock_guard<std::mutex> held(objects_lock);
    if (object_count < OBJECTS_MAX) objects[object_count++] = {file, made->root, made->made, made->parent, made->class_, engine};
}

extern "C" int ioctl(int file, unsigned long request, ...) noexcept
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = (int)syscall(SYS_ioctl, file, request, argument), error = errno;
    unsigned type = (request >> 8) & 0xff, number = request & 0xff, size = (request >> 16) & 0x3fff;
    if (result == 0 && type == 'F' && argument) {
        if (number == RM_XFER) {
            const Xfer *wrapped = (const Xfer *)argument;
            number = wrapped->command, size = wrapped->size, argument = (void *)(uintptr_t)wrapped->pointer;
        }
        if (number == RM_ALLOC && size == sizeof(AllocLong)) record<AllocLong>(file, argument);
        else if (number == RM_ALLOC && size == sizeof(AllocShort)) record<AllocShort>(file, argument);
    }
    errno = error;
    return result;
}

// A compute group with its channels, and what it takes to name them to the driver.
struct Group { int file; uint32_t client, subdevice, handle, count, channels[CHANNELS_MAX]; };

static Group own_group()
{
    Group found = {-1, 0, 0, 0, 0, {0}};
    std::lock_guard<std::mutex> held(objects_lock);
    for (int i = 0; i < object_count; i++)
        if (objects[i].class_ == CLASS_GROUP && objects[i].engine == ENGINE_COMPUTE)
            found.file = objects[i].file, found.client = objects[i].client, found.handle = objects[i].handle;
    for (int i = 0; i < object_count && found.file >= 0; i++) {
        if (objects[i].client != found.client) continue;
        bool channel = (objects[i].class_ & 0xff) == LOW_BYTE_CHANNEL && objects[i].parent == found.handle;
        if (objects[i].class_ == CLASS_SUBDEVICE) found.subdevice = objects[i].handle;
        else if (channel && found.count < CHANNELS_MAX) found.channels[found.count++] = objects[i].handle;
    }
    return found;
}

// Answers the driver's status, or less than zero: an errno.
static long control(const Group &group, uint32_t object, uint32_t command, void *parameters, uint32_t size)
{
    Control call = {group.client, object, command, 0, (uint64_t)(uintptr_t)parameters, size, 0xffffffff};
    unsigned long request = (3ul << 30) | ((unsigned long)sizeof call << 16) | ('F' << 8) | RM_CONTROL;
    return syscall(SYS_ioctl, group.file, request, &call) ? -(long)errno : (long)call.status;
}

// One FIFO_DISABLE_CHANNELS call: freezes (1) or thaws (0).
static long disable_channels(const Group &group, uint8_t disable)
{
    uint8_t parameters[DISABLE_CHANNELS_SIZE] = {disable};
    memcpy(parameters + 4, &group.count, 4);
    for (uint32_t i = 0; i < group.count; i++) {
        memcpy(parameters + 24 + 4 * i, &group.client, 4);
        memcpy(parameters + 280 + 4 * i, &group.channels[i], 4);
    }
    return control(group, group.subdevice, DISABLE_CHANNELS, parameters, sizeof parameters);
}

static bool is_be;
static pid_t be_pid;                     // in LC; waited for in end() only, so that no other process has that number
static Group be = {-1, 0, 0, 0, 0, {0}}; // with a file from when it can be frozen
static std::atomic<bool> failed, ending, thawed;

// The only way out: BE is thawed, then killed, whatever happened. Thawing may hang in the driver, so another thread does it. What is
// thawed more often than it was frozen takes no harm.
[[noreturn]] static void end()
{
    if (ending.exchange(true)) for (;;) pause(); // another thread is at it
    if (be_pid > 0) {
        if (be.file >= 0) {
            std::thread([] { disable_channels(be, 0), thawed = true; }).detach();
            for (int n = 0; n < 200 && !thawed; n++) usleep(10000);
            if (!thawed) printf("FAIL  BE was not thawed within 2 s, and is killed as it is\n"), failed = true;
        }
        kill(be_pid, SIGKILL);
        bool gone = false;
        for (int n = 0; n < 500 && !gone; n++) {
            gone = waitpid(be_pid, nullptr, WNOHANG) != 0;
            if (!gone) usleep(10000);
        }
        if (!gone) printf("FAIL  BE, process %d, was not gone 5 s after it was killed\n", (int)be_pid), failed = true;
    }
    fflush(stdout);
    _exit(failed ? 1 : 0);
}

// Says what the probe cannot do without, and ends.
[[noreturn]] static void broke(const char *format, ...)
{
    if (ending) end(); // what breaks while all is ended is not worth a word
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("FAIL  %s%s\n", is_be ? "BE: " : "", text);
    fflush(stdout);
    failed = true;
    end();
}

// Every control's status is looked at: less than zero is an errno.
static void see(const char *what, long status)
{
    if (status < 0) broke("%s: %s", what, strerror((int)-status));
    if (status) broke("%s: the driver says 0x%lx", what, status);
}

// Answers the slice that the driver says it has set.
static uint64_t sliced(const Group &group, uint64_t us)
{
    see("SET_TIMESLICE", control(group, group.handle, SET_TIMESLICE, &us, sizeof us));
    see("GET_TIMESLICE", control(group, group.handle, GET_TIMESLICE, &us, sizeof us));
    return us;
}

// Of both processes: kernels of a chosen length, on one stream of one context.
static const char PTX[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry work(.param .u64 where, .param .u32 turns)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %turn, %last, %thread;\n"
    "    .reg .b64 %where;\n"
    "    .reg .f32 %a, %b, %c, %d;\n"
    "    ld.param.u64 %where, [where];\n"
    "    ld.param.u32 %last, [turns];\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    cvt.rn.f32.u32 %a, %thread;\n"
    "    mov.f32 %b, 0f3F800347;\n" // 1.0001
    "    mov.f32 %c, 0f3F000000;\n" // 0.5
    "    mov.f32 %d, 0f3F8CCCCD;\n" // 1.1
    "    mov.u32 %turn, 0;\n"
    "again:\n"
    "    fma.rn.f32 %a, %a, %b, %c;\n"
    "    fma.rn.f32 %d, %d, %b, %a;\n"
    "    fma.rn.f32 %c, %c, %b, %d;\n"
    "    add.u32 %turn, %turn, 1;\n"
    "    setp.lt.u32 %p, %turn, %last;\n"
    "    @%p bra again;\n"
    "    setp.neu.f32 %p, %a, 0f42F60000;\n" // 123: never, but the compiler cannot know
    "    @%p bra finish;\n"
    "    cvta.to.global.u64 %where, %where;\n"
    "    st.global.f32 [%where], %a;\n"
    "finish:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry warm_up(.param .u64 where, .param .u64 number)\n"
    "{\n"
    "    .reg .b64 %where, %number;\n"
    "    ld.param.u64 %where, [where];\n"
    "    ld.param.u64 %number, [number];\n"
    "    cvta.to.global.u64 %where, %where;\n"
    "    st.relaxed.sys.global.u64 [%where], %number;\n"
    "    ret;\n"
    "}\n";

static CUcontext context;
static CUstream stream;
static CUfunction work, warm_up;
static CUdeviceptr out, word_there;
static volatile uint64_t *word; // the number of the warm-up that ran last

static void launch(uint32_t turns)
{
    void *parameters[] = {&out, &turns};
    NEED(cuLaunchKernel(work, FULL, 1, 1, THREADS, 1, 1, 0, stream, parameters, nullptr));
}

static void launch_warm_up(uint64_t number)
{
    void *parameters[] = {&word_there, &number};
    NEED(cuLaunchKernel(warm_up, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
}

static void make_context()
{
    CUdevice device;
    CUmodule module;
    void *host;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_SPIN));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuModuleLoadData(&module, PTX));
    NEED(cuModuleGetFunction(&work, module, "work"));
    NEED(cuModuleGetFunction(&warm_up, module, "warm_up"));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&out, 4));
    NEED(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, 4096);
    word = (volatile uint64_t *)host;
    NEED(cuMemHostGetDevicePointer(&word_there, host, 0));
    launch_warm_up(0);
    NEED(cuStreamSynchronize(stream));
}

struct Length { uint32_t turns; double us; };

// How many turns of the loop make a kernel of so many microseconds, and how long that takes. The first passes are for the clocks.
static Length calibrated(double us)
{
    Length found = {2000, us};
    const int PASSES = 6, kernels = (int)(100000 / us); // 100 ms each
    for (int pass = 0; pass < PASSES; pass++) {
        found.turns = (uint32_t)std::min(std::max(found.turns * us / found.us, 1.0), 1e8);
        int64_t began = now_ns();
        for (int n = 0; n < kernels; n++) launch(found.turns);
        NEED(cuStreamSynchronize(stream));
        found.us = std::max((now_ns() - began) / 1e3 / kernels, 0.1);
    }
    if (std::fabs(found.us / us - 1) > 0.2) printf("FAIL  a kernel that was to take %.0f us takes %.0f\n", us, found.us), failed = true;
    return found;
}

// What both processes see, and what BE says on the pipe when it is ready.
struct Shared { std::atomic<uint64_t> kernels; std::atomic<uint32_t> go; };
struct Hello { Group group; Length length; uint64_t slice_us; };
static Shared *shared;

static Shared *mapped(int memory)
{
    void *place = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (place == MAP_FAILED) broke("mmap: %s", strerror(errno));
    return (Shared *)place;
}

[[noreturn]] static void run_be(int memory, int to)
{
    is_be = true;
    shared = mapped(memory);
    make_context();
    Hello hello = {};
    hello.length = calibrated(BE_KERNEL_US);
    hello.group = own_group();
    if (!hello.group.count || !hello.group.subdevice) broke("its compute channels were not seen: is it linked with -rdynamic?");
    hello.slice_us = sliced(hello.group, BE_SLICE_US);
    if (write(to, &hello, sizeof hello) != (ssize_t)sizeof hello) broke("pipe: %s", strerror(errno));
    while (!shared->go && now_ns() - process_began < BE_ENDS) usleep(1000); // LC wants the GPU for itself first
    while (now_ns() - process_began < BE_ENDS) {
        for (int n = 0; n < BE_KERNELS; n++) launch(hello.length.turns);
        NEED(cuStreamSynchronize(stream));
        shared->kernels += BE_KERNELS;
    }
    _exit(0);
}

// Starts BE, before this process has called CUDA; answers where it will say hello.
static int start_be()
{
    int memory = memfd_create("early", 0), ends[2];
    if (memory < 0 || ftruncate(memory, sizeof(Shared)) || pipe(ends)) broke("memfd and pipe: %s", strerror(errno));
    shared = mapped(memory);
    char memory_text[16], pipe_text[16];
    snprintf(memory_text, sizeof memory_text, "%d", memory);
    snprintf(pipe_text, sizeof pipe_text, "%d", ends[1]);
    pid_t parent = getpid();
    be_pid = fork();
    if (be_pid < 0) broke("fork: %s", strerror(errno));
    if (!be_pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // stays over exec
        if (getppid() != parent) _exit(1);
        execl("/proc/self/exe", "early", "be", memory_text, pipe_text, (char *)nullptr);
        _exit(127);
    }
    close(ends[1]);
    return ends[0];
}

static Hello heard(int from)
{
    Hello hello = {};
    pollfd ready = {from, POLLIN, 0};
    if (poll(&ready, 1, (int)(HELLO_WITHIN / MS)) != 1) broke("waited for BE in vain, for %d s or until a signal came", (int)(HELLO_WITHIN / S));
    if (read(from, &hello, sizeof hello) != (ssize_t)sizeof hello) broke("BE ended before it was ready");
    return hello;
}

// BE's group, with a copy of BE's own file: the driver refuses any other.
static Group reachable(Group group)
{
    int process = (int)syscall(SYS_pidfd_open, be_pid, 0);
    if (process < 0) broke("pidfd_open of BE: %s (errno %d)", strerror(errno), errno);
    group.file = (int)syscall(SYS_pidfd_getfd, process, group.file, 0);
    if (group.file < 0) broke("pidfd_getfd of BE's control file: %s (errno %d)", strerror(errno), errno);
    return group;
}

static std::atomic<int> signalled;

// A request that never ends, a driver that hangs, a signal: all end here.
static void watch()
{
    while (!signalled && now_ns() - process_began < PROBE_ENDS) usleep(10000);
    if (signalled) broke("ended by signal %d", signalled.load());
    broke("not done after %d s", (int)(PROBE_ENDS / S));
}

static const int THAWS_US[] = {-1, 75, 50, 25, 0};                   // after the request's begin; -1: when it has ended
static const int THAWS_LEAD_US = 600, THAWS_WARM_US = 300;

enum Warm { NO_WARM_UP, WHEN_FROZEN, AT_TIME };
struct Way { const char *name; Warm warm; int us; };
static const Way WAYS[] = {{"no warm-up", NO_WARM_UP, 0}, {"when frozen", WHEN_FROZEN, 0}, {"at +0 us", AT_TIME, 0}, {"at +100 us", AT_TIME, 100},
    {"at +200 us", AT_TIME, 200}, {"at +300 us", AT_TIME, 300}, {"at +400 us", AT_TIME, 400}, {"at +500 us", AT_TIME, 500}};

// One request. The main thread writes what is wanted, then raises `turn` to the request's number; the others raise theirs when they
// have done their part, and have written what came of it. All three spin: waking up takes longer than what is measured here.
struct Plan { bool freezes; Warm warm; int64_t warm_after, freeze_at, request_at, thaw_after; }; // thaw_after: less than zero: when it has ended
struct Outcome { int64_t freeze_took, thaw_took, warm_up_at, warm_up_took, loaded_at; }; // 0: was not; the two `at` count from the freeze's begin
static Plan plan;
static Outcome outcome;
static std::atomic<uint64_t> turn, freezer_at, warmer_at, request_begun, request_launched, request_ended;
static std::atomic<int64_t> freeze_begun, freeze_returned; // 0: not yet
static std::atomic<int64_t> request_began;                 // of the one that was launched

static void run_freezer()
{
    for (uint64_t mine = 1;; mine++) {
        while (turn < mine) {}
        if (plan.freezes) {
            while (now_ns() < plan.freeze_at) {}
            freeze_begun = now_ns();
            see("freezing BE", disable_channels(be, 1));
            freeze_returned = now_ns();
            outcome.freeze_took = freeze_returned - freeze_begun;
            if (plan.thaw_after < 0) while (request_ended < mine) {}
            else while (request_launched < mine || now_ns() < request_began + plan.thaw_after) {}
            int64_t began = now_ns();
            see("thawing BE", disable_channels(be, 0));
            outcome.thaw_took = now_ns() - began;
        }
        freezer_at = mine;
    }
}

static void run_warmer()
{
    NEED(cuCtxSetCurrent(context));
    for (uint64_t mine = 1;; mine++) {
        while (turn < mine) {}
        const std::atomic<int64_t> &from = plan.warm == WHEN_FROZEN ? freeze_returned : freeze_begun;
        if (plan.warm != NO_WARM_UP) {
            while ((!from || now_ns() < from + plan.warm_after) && request_begun < mine) {}
            if (request_begun < mine) { // behind its request a warm-up is of no use
                int64_t began = now_ns();
                launch_warm_up(mine);
                outcome.warm_up_took = now_ns() - began;
                outcome.warm_up_at = std::max<int64_t>(began - freeze_begun, 1);
                while (*word != mine && request_ended < mine) {}
                if (*word == mine) outcome.loaded_at = now_ns() - freeze_begun;
            }
        }
        warmer_at = mine;
    }
}

static Length lc_length;
static int late, requests_made;

// Makes the request that `plan` says; answers how long it took.
static int64_t request()
{
    uint64_t mine = turn + 1;
    outcome = {};
    freeze_begun = freeze_returned = 0;
    turn = mine;
    while (now_ns() < plan.request_at) {}
    request_begun = mine;
    int64_t began = now_ns();
    launch(lc_length.turns);
    request_began = began;
    request_launched = mine; // a thaw at once comes behind the launch, by which rota sees a request
    NEED(cuStreamSynchronize(stream));
    int64_t ended = now_ns();
    request_ended = mine;
    late += began - plan.request_at > LATE, requests_made++;
    while (freezer_at < mine || warmer_at < mine)
        if (now_ns() - ended > THREADS_WITHIN) broke("%s was not done %d s after its request", freezer_at < mine ? "a thaw" : "a warm-up", (int)(THREADS_WITHIN / S));
    return ended - began;
}

// Without it, requests and BE's kernels might march in step.
static int64_t by_chance()
{
    static uint64_t state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((state >> 33) % (2 * SPREAD)) - SPREAD;
}

// What was measured of a way and a lead: microseconds, and what BE did meanwhile.
struct Cell { std::vector<double> latency; double kernels = 0, seconds = 0; };
// What does not depend on the lead, in microseconds: one for each way.
struct Times { std::vector<double> freeze, warm_up_at, warm_up_took, loaded; };
static std::vector<double> thaws;

// So many requests. Without a way, nothing is frozen or warmed up.
static void measure(const Way *way, int lead_us, int requests, Cell &cell, Times *times, int thaw_us = -1)
{
    siginfo_t end_of_be = {};
    waitid(P_PID, be_pid, &end_of_be, WEXITED | WNOHANG | WNOWAIT);
    if (end_of_be.si_pid) broke("BE has ended");
    uint64_t before = shared->kernels;
    int64_t began = now_ns(), lead = lead_us * US, at = began + BE_LEAST + lead;
    for (int n = 0, stuck = 0; n < requests && stuck < STUCK_MAX; n++) {
        if (way) plan = {true, way->warm, way->us * US, at - lead, at, thaw_us < 0 ? -1 : thaw_us * US};
        else plan = {false, NO_WARM_UP, 0, 0, at, -1};
        int64_t took = request();
        stuck += took > STUCK;
        cell.latency.push_back(took / 1e3);
        if (times && outcome.freeze_took) times->freeze.push_back(outcome.freeze_took / 1e3), thaws.push_back(outcome.thaw_took / 1e3);
        if (times && outcome.warm_up_at) times->warm_up_at.push_back(outcome.warm_up_at / 1e3), times->warm_up_took.push_back(outcome.warm_up_took / 1e3);
        if (times && outcome.loaded_at) times->loaded.push_back(outcome.loaded_at / 1e3);
        at = std::max(at + PERIOD + by_chance(), now_ns() + BE_LEAST + lead);
    }
    cell.kernels += shared->kernels - before, cell.seconds += (now_ns() - began) / 1e9;
}

static double percentile(std::vector<double> values, double part)
{
    if (values.empty()) return NAN;
    std::sort(values.begin(), values.end());
    return values[std::max<size_t>((size_t)std::ceil(part * values.size()), 1) - 1];
}

static double p50(const std::vector<double> &values) { return percentile(values, 0.5); }
static double p99(const std::vector<double> &values) { return percentile(values, 0.99); }

// BE's kernels a second with nobody beside it.
static double solo_rate()
{
    uint64_t before = shared->kernels;
    int64_t began = now_ns();
    usleep(1000000);
    return (shared->kernels - before) * 1e9 / (now_ns() - began);
}

static uint64_t kernels_in(int ms)
{
    uint64_t before = shared->kernels;
    usleep(ms * 1000);
    return shared->kernels - before;
}

// Statuses prove nothing: BE's counter must stand still while it is frozen, and only then.
static void check_freezing()
{
    const int WATCHED_MS = 50, SETTLES_MS = 5;
    uint64_t free_before = kernels_in(WATCHED_MS);
    see("freezing BE", disable_channels(be, 1));
    kernels_in(SETTLES_MS); // BE may yet count what was done
    uint64_t frozen = kernels_in(WATCHED_MS);
    see("thawing BE", disable_channels(be, 0));
    uint64_t free_after = kernels_in(WATCHED_MS);
    printf("FACT  BE's kernels in %d ms: %d before a freeze, %d in it, %d after it\n", WATCHED_MS, (int)free_before, (int)frozen, (int)free_after);
    if (!free_before || frozen || !free_after) broke("freezing does not freeze, or thawing does not thaw");
}

static const int WAY_COUNT = sizeof WAYS / sizeof *WAYS, LEAD_COUNT = sizeof LEADS_US / sizeof *LEADS_US;
static const int THAW_COUNT = sizeof THAWS_US / sizeof *THAWS_US;
static const Way THAWS_WAY = {"", AT_TIME, THAWS_WARM_US};
static Cell alone, unfrozen, cells[WAY_COUNT][LEAD_COUNT], thawed_so[THAW_COUNT];
static Times times_of[WAY_COUNT];

// A warm-up that would come with its request or after it is none.
static bool has_cell(const Way &way, int lead_us) { return way.warm != AT_TIME || way.us < lead_us; }

// A part of each cell in each round, so that what changes in the course of a minute changes all of them.
static void measure_all()
{
    for (int round = 0; round < ROUNDS; round++) {
        see("freezing BE", disable_channels(be, 1));
        measure(nullptr, 0, REQUESTS_ALONE, alone, nullptr);
        see("thawing BE", disable_channels(be, 0));
        measure(nullptr, 0, REQUESTS, unfrozen, nullptr);
        // Twice as many: what is to be told apart here is less.
        for (int thaw = 0; thaw < 2 * THAW_COUNT; thaw++)
            measure(&THAWS_WAY, THAWS_LEAD_US, REQUESTS, thawed_so[thaw % THAW_COUNT], nullptr, THAWS_US[thaw % THAW_COUNT]);
        for (int lead = 0; lead < LEAD_COUNT; lead++)
            for (int way = 0; way < WAY_COUNT; way++) {
                if (!has_cell(WAYS[way], LEADS_US[lead])) continue;
                if (now_ns() - process_began > CELLS_END) {
                    printf("FAIL  time was up in round %d of %d\n", round + 1, ROUNDS), failed = true;
                    return;
                }
                measure(&WAYS[way], LEADS_US[lead], REQUESTS, cells[way][lead], &times_of[way]);
            }
    }
}

static void print_table(double solo)
{
    auto share = [=](const Cell &cell) { return 100 * cell.kernels / cell.seconds / solo; };
    printf("FACT  LC alone (BE frozen all the time): p50 %.1f p99 %.1f us\n", p50(alone.latency), p99(alone.latency));
    printf("FACT  no freeze: p50 %.1f p99 %.1f us, BE keeps %.0f%%\n", p50(unfrozen.latency), p99(unfrozen.latency), share(unfrozen));
    printf("FACT  p50/p99 us of requests and what BE keeps, by lead; of freezes; of warm-ups: the call, and since the freeze was begun\n");
    printf("FACT  %-11s", "warm-up");
    for (int lead_us : LEADS_US) printf(" %9d us   ", lead_us);
    printf("%9s  %9s  %10s  %10s    %s\n", "freeze", "call", "launched", "had run", "warmed up");
    for (int way = 0; way < WAY_COUNT; way++) {
        size_t made = 0;
        printf("FACT  %-11s", WAYS[way].name);
        for (const Cell &cell : cells[way]) {
            made += cell.latency.size();
            if (cell.latency.empty()) printf(" %-15s", "      -");
            else printf(" %5.0f/%-5.0f%3.0f%%", p50(cell.latency), p99(cell.latency), share(cell));
        }
        const Times &of = times_of[way];
        printf(" %5.0f/%-4.0f", p50(of.freeze), p99(of.freeze));
        if (!of.warm_up_at.empty())
            printf(" %5.0f/%-4.0f  %5.0f/%-4.0f  %5.0f/%-4.0f  %zu of %zu", p50(of.warm_up_took), p99(of.warm_up_took), p50(of.warm_up_at), p99(of.warm_up_at),
                   p50(of.loaded), p99(of.loaded), of.warm_up_at.size(), made);
        printf("\n");
    }
}

static void print_thaws(double solo)
{
    printf("FACT  a lead of %d us, a warm-up at +%d us: p50/p99 us of requests, and what BE keeps, by when BE is thawed\n", THAWS_LEAD_US, THAWS_WARM_US);
    for (int thaw = 0; thaw < THAW_COUNT; thaw++) {
        const Cell &cell = thawed_so[thaw];
        if (THAWS_US[thaw] < 0) printf("FACT      when it has ended  ");
        else printf("FACT      at +%-3d us          ", THAWS_US[thaw]);
        printf("%5.1f/%-6.1f %5.1f%%  (%zu requests)\n", p50(cell.latency), p99(cell.latency), 100 * cell.kernels / cell.seconds / solo, cell.latency.size());
    }
}

static void print_least_leads(double solo)
{
    double p50_most = WITHIN * p50(alone.latency), p99_most = WITHIN * p99(alone.latency);
    printf("FACT  the least lead with p50 <= %.1f and p99 <= %.1f us, %.2f of alone:\n", p50_most, p99_most, WITHIN);
    for (int way = 0; way < WAY_COUNT; way++) {
        printf("FACT      %-11s  ", WAYS[way].name);
        int lead = 0;
        auto holds = [&](const Cell &cell) { return !cell.latency.empty() && p50(cell.latency) <= p50_most && p99(cell.latency) <= p99_most; };
        while (lead < LEAD_COUNT && !holds(cells[way][lead])) lead++;
        if (lead == LEAD_COUNT) printf("none\n");
        else printf("%d us, BE keeps %.0f%%\n", LEADS_US[lead], 100 * cells[way][lead].kernels / cells[way][lead].seconds / solo);
    }
}

int main(int given, char **arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (given == 4 && !strcmp(arguments[1], "be")) run_be(atoi(arguments[2]), atoi(arguments[3]));
    if (given != 1) return fprintf(stderr, "early\n"), 2;
    int from = start_be();
    std::thread(watch).detach();
    for (int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, [](int sent) { signalled = sent; });
    const unsigned CORES = 5; // this process spins on three, BE on one
    if (std::thread::hardware_concurrency() < CORES) printf("FAIL  fewer than %u cores: threads that spin wait for one another\n", CORES), failed = true;

    Hello hello = heard(from);
    make_context();
    lc_length = calibrated(LC_KERNEL_US);
    Group own = own_group();
    if (own.file < 0) broke("LC's compute group was not seen: is it linked with -rdynamic?");
    uint64_t own_slice_us = sliced(own, LC_SLICE_US);
    be = reachable(hello.group);
    printf("FACT  BE: %u compute channels, kernels of %.0f us (%u turns), a slice of %d us\n", be.count, hello.length.us, hello.length.turns, (int)hello.slice_us);
    printf("FACT  LC: kernels of %.1f us (%u turns), a slice of %d us\n", lc_length.us, lc_length.turns, (int)own_slice_us);
    shared->go = 1;
    for (int n = 0; n < 500 && !shared->kernels; n++) usleep(10000);
    check_freezing();

    std::thread(run_freezer).detach();
    std::thread(run_warmer).detach();
    double solo_before = solo_rate();
    Cell first; // for all that is done once only
    measure(&WAYS[1], LEADS_US[LEAD_COUNT - 1], 10, first, nullptr);
    measure_all();
    double solo_after = solo_rate(), solo = (solo_before + solo_after) / 2;
    printf("FACT  BE by itself: %.0f kernels a second before, %.0f after\n", solo_before, solo_after);
    print_table(solo);
    printf("FACT  thaw p50/p99 %.0f/%.0f us; %d of %d requests began more than %d us late\n", p50(thaws), p99(thaws), late, requests_made, (int)(LATE / US));
    print_thaws(solo);
    print_least_leads(solo);
    end();
}
