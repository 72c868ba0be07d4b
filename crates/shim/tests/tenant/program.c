// A CUDA program that does what it is told: one command a line on stdin, one answer a line on stdout.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static int call5(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    any function = (any)dlsym(RTLD_DEFAULT, name);
    return function ? function(a, b, c, d, e) : -1;
}
static int call(const char *name, uint64_t a, uint64_t b, uint64_t c) { return call5(name, a, b, c, 0, 0); }
#define AT(place) ((uint64_t)(uintptr_t)&(place))

int main(void) {
    char line[200], word[40], name[40];
    void *context = NULL;
    int files[1024], open_files = 0;
    alarm(60); // A program that hangs must not hang its test.
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long value = 0, more = 0;
        uint64_t address = 0, first = 0, second = 0;
        int result = 0;
        sscanf(line, "%39s %llx %llx", word, &value, &more);
        if (!strcmp(word, "init")) {
            printf("%d\n", call("cuInit", 0, 0, 0));
        } else if (!strcmp(word, "context")) {
            result = call("cuDevicePrimaryCtxRetain", AT(context), 0, 0);
            if (!result) result = call("cuCtxSetCurrent", (uintptr_t)context, 0, 0);
            printf("%d\n", result);
        } else if (!strcmp(word, "end-context")) {
            // By the function of this name, which takes a device or a context.
            sscanf(line, "%*s %39s", name);
            int of_device = !strncmp(name, "cuDevice", 8);
            printf("%d\n", call(name, of_device ? 0 : (uintptr_t)context, 0, 0));
        } else if (!strcmp(word, "green")) {
            result = call("cuGreenCtxCreate", AT(context), 0, 0);
            if (!result) result = call("cuCtxFromGreenCtx", AT(context), (uintptr_t)context, 0);
            if (!result) result = call("cuCtxSetCurrent", (uintptr_t)context, 0, 0);
            printf("%d\n", result);
        } else if (!strcmp(word, "call")) {
            unsigned long long a = 0, b = 0, c = 0, d = 0, e = 0;
            sscanf(line, "%*s %39s %llx %llx %llx %llx %llx", name, &a, &b, &c, &d, &e);
            printf("%d\n", call5(name, a, b, c, d, e));
        } else if (!strcmp(word, "attributes")) {
            int kinds[2] = {9, (int)more};
            void *places[2] = {&first, &second};
            printf("%d\n", call5("cuPointerGetAttributes", 2, AT(kinds), AT(places), value, 0));
        } else if (!strcmp(word, "foreign")) {
            // Memory that is not rota's.
            printf("%llx\n", (unsigned long long)AT(files));
        } else if (!strcmp(word, "fill")) {
            // Leaves room for this many more open files.
            struct rlimit limit = {1024, 1024};
            setrlimit(RLIMIT_NOFILE, &limit);
            while ((files[open_files] = dup(0)) >= 0) open_files++;
            while (value--) close(files[--open_files]);
            printf("0\n");
        } else if (!strcmp(word, "empty")) {
            while (open_files) close(files[--open_files]);
            printf("0\n");
        } else if (!strcmp(word, "alloc")) {
            result = call("cuMemAlloc_v2", AT(address), value, 0);
            printf("%d %llx\n", result, (unsigned long long)address);
        } else if (!strcmp(word, "free")) {
            printf("%d\n", call("cuMemFree_v2", value, 0, 0));
        } else if (!strcmp(word, "write")) {
            *(uint64_t *)(uintptr_t)value = more;
            printf("0\n");
        } else if (!strcmp(word, "read")) {
            printf("%llx\n", (unsigned long long)*(uint64_t *)(uintptr_t)value);
        } else if (!strcmp(word, "copy")) {
            printf("%d\n", call("cuMemcpyHtoD_v2", value, AT(more), sizeof more));
        } else if (!strcmp(word, "copy-batch")) {
            int (*batch)(uint64_t *, uint64_t *, size_t *, size_t, void *, void *, size_t, size_t *, void *) =
                (int (*)(uint64_t *, uint64_t *, size_t *, size_t, void *, void *, size_t, size_t *, void *))dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync");
            size_t bytes = sizeof more, failed = 0;
            address = value, first = AT(more);
            result = batch(&address, &first, &bytes, 1, (void *)5, (void *)6, 7, &failed, (void *)9);
            printf("%d %zu\n", result, failed);
        } else if (!strcmp(word, "info")) {
            result = call("cuMemGetInfo_v2", AT(first), AT(second), 0);
            printf("%d %llx %llx\n", result, (unsigned long long)first, (unsigned long long)second);
        } else if (!strcmp(word, "range")) {
            result = call("cuMemGetAddressRange_v2", AT(first), AT(second), value);
            printf("%d %llx %llx\n", result, (unsigned long long)first, (unsigned long long)second);
        } else if (!strcmp(word, "attribute")) {
            result = call("cuPointerGetAttribute", AT(first), more, value);
            printf("%d %llx\n", result, (unsigned long long)first);
        } else if (!strcmp(word, "pitch")) {
            result = call5("cuMemAllocPitch_v2", AT(address), AT(first), value, more, 4);
            printf("%d %llx %llx\n", result, (unsigned long long)address, (unsigned long long)first);
        } else if (!strcmp(word, "create")) {
            // So many bytes on the device; then how it can be shared, and 100 for RDMA.
            uint32_t wanted[8] = {1, (uint32_t)more & 0xff, 1, 0, 0, 0, (uint32_t)more & 0xff00, 0};
            result = call5("cuMemCreate", AT(first), value, AT(wanted), 0, 0);
            printf("%d %llx\n", result, (unsigned long long)first);
        } else if (!strcmp(word, "kind")) {
            uint32_t found[8] = {0};
            result = call("cuMemGetAllocationPropertiesFromHandle", AT(found), value, 0);
            printf("%d %x\n", result, found[1] | found[6]);
        } else if (!strcmp(word, "reserve")) {
            result = call5("cuMemAddressReserve", AT(address), value, 0, 0, 0);
            printf("%d %llx\n", result, (unsigned long long)address);
        } else if (!strcmp(word, "open")) {
            uint32_t access[3] = {1, 0, 3};
            printf("%d\n", call5("cuMemSetAccess", value, more, AT(access), 1, 0));
        } else if (!strcmp(word, "retain")) {
            result = call("cuMemRetainAllocationHandle", AT(first), value, 0);
            printf("%d %llx\n", result, (unsigned long long)first);
        } else if (!strcmp(word, "export")) {
            // The first word behind the file.
            int file = -1;
            result = call5("cuMemExportToShareableHandle", AT(file), value, more, 0, 0);
            if (!result && pread(file, &first, sizeof first, 0) < 0) result = -1;
            printf("%d %llx\n", result, (unsigned long long)first);
        } else if (!strcmp(word, "name")) {
            // A name for others; the first half of its token.
            char bytes[64] = {0};
            result = call("cuIpcGetMemHandle", (uintptr_t)bytes, value, 0);
            memcpy(&first, bytes + 8, sizeof first);
            printf("%d %llx\n", result, (unsigned long long)first);
        } else if (!strcmp(word, "open-name")) {
            // Memory of another process: the token of its name, and its size.
            struct { char bytes[64]; } of_others = {"rota-ipc"};
            memcpy(of_others.bytes + 8, &value, sizeof value);
            memcpy(of_others.bytes + 32, &more, sizeof more);
            int (*opens)(uint64_t *, __typeof__(of_others), unsigned) =
                (int (*)(uint64_t *, __typeof__(of_others), unsigned))dlsym(RTLD_DEFAULT, "cuIpcOpenMemHandle_v2");
            result = opens(&address, of_others, 1);
            printf("%d %llx\n", result, (unsigned long long)address);
        } else if (!strcmp(word, "deinitialize")) {
            void *driver = dlopen(getenv("ROTA_DRIVER"), RTLD_NOW);
            ((void (*)(void))dlsym(driver, "fake_deinitialize"))();
            printf("0\n");
        } else if (!strcmp(word, "fork")) {
            // The child runs natively, and the parent is undisturbed.
            pid_t child = fork();
            if (!child) {
                alarm(20); // It does not inherit the parent's.
                result = call("cuMemAlloc_v2", AT(address), 100, 0);
                if (!result) result = call("cuMemFree_v2", address, 0, 0);
                _exit(result);
            }
            waitpid(child, &result, 0);
            printf("%d\n", result);
        } else if (!strcmp(word, "fork-stays")) {
            if (!fork()) {
                /* It says so itself: only then the handlers of its fork have run. */
                printf("%d\n", (int)getpid());
                fflush(stdout);
                alarm(120);
                for (;;) pause();
            }
        } else {
            printf("unknown\n");
        }
        fflush(stdout);
    }
    return 0;
}
