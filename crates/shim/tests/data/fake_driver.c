/* A driver that only shows what reached it. Functions bear driver names; their arguments are the test's own. */
#include <stdint.h>
#include <string.h>

/* Runs when the library is opened, in the middle of a first call: nothing may rely on these registers. */
__attribute__((constructor)) static void spoil_argument_registers(void) {
  __asm__ volatile(
      "mov $-1, %%rax; mov %%rax, %%rdi; mov %%rax, %%rsi; mov %%rax, %%rdx; mov %%rax, %%rcx;"
      "mov %%rax, %%r8; mov %%rax, %%r9; mov %%rax, %%r10; mov %%rax, %%r11;"
      "movq %%rax, %%xmm0; movq %%rax, %%xmm1; movq %%rax, %%xmm2; movq %%rax, %%xmm3;"
      "movq %%rax, %%xmm4; movq %%rax, %%xmm5; movq %%rax, %%xmm6; movq %%rax, %%xmm7;"
      :
      :
      : "rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
        "xmm6", "xmm7");
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDriverGetVersion(int *version) { *version = 12080; return 0; }

/* Six arguments in registers, six on the stack. */
int cuTensorMapEncodeTiled(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f,
                   int64_t g, int64_t h, int64_t i, int64_t j, int64_t k, int64_t l) {
  int64_t seen[12] = {a, b, c, d, e, f, g, h, i, j, k, l};
  for (int n = 0; n < 12; n++)
    if (seen[n] != 0x0101010101010101 * (n + 1)) return 1000 + n;
  return 42;
}

/* As many as a launch has, in a stream or not: six in registers, five on the stack. */
int cuLaunchKernel(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h, int64_t i,
                   int64_t j, int64_t k) {
  /* Needs an aligned stack. */
  __attribute__((aligned(16))) volatile char here[16];
  __asm__ volatile("movaps %%xmm0, (%0)" : : "r"(here) : "memory");
  int64_t seen[11] = {a, b, c, d, e, f, g, h, i, j, k};
  for (int n = 0; n < 11; n++)
    if (n != 8 && seen[n] != 0x0101010101010101 * (n + 1)) return 1000 + n;
  return 42 + (int)i;
}

/* The stream lies in the structure, 32 bytes in. */
int cuLaunchKernelEx(const char *config, void *function, void **arguments, void **more) {
  if (!config) return 1;
  return 42 + *(const int *)(config + 32) + (function || arguments || more);
}

/* Eight floating-point arguments in registers, two on the stack, pointers between them. */
int cuTexRefSetMipmapLevelClamp(double a, double b, void *p, double c, double d, double e, double f, double g,
                                double h, double i, double j, void **q) {
  double seen[10] = {a, b, c, d, e, f, g, h, i, j};
  for (int n = 0; n < 10; n++)
    if (seen[n] != n + 0.5) return 1000 + n;
  *q = p;
  return 43;
}

int cuStreamQuery(void *stream) { return (int)(intptr_t)stream; }

int cuMemAlloc_v2(uint64_t *address, uint64_t size) { *address = size; return 0; }

int cuGetErrorName(int code, const char **text) { *text = "FAKE"; return code; }

/* Finds something under every name but two. */
int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
  *address = 0;
  if (status) *status = 7;
  if (!strcmp(name, "cuFakeFailure")) return 500;
  if (strcmp(name, "cuFakeNothing")) *address = (void *)cuLaunchKernel;
  return 0;
}
