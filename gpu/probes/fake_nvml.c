// E9: a library with the SONAME of NVML that says when it is loaded and when it is called. It has two functions of some hundred.
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { fprintf(stderr, "fake NVML: loaded in process %d\n", getpid()); }
int nvmlInit_v2(void) { fprintf(stderr, "fake NVML: nvmlInit_v2\n"); return 999; }
int nvmlInitWithFlags(unsigned flags) { fprintf(stderr, "fake NVML: nvmlInitWithFlags(%u)\n", flags); return 999; }
