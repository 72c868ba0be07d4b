// E9: what NVML answers about the state of the machine that rota must refuse or name.
#include "probe.h"

int main(void)
{
    if (nvml_begin()) return 1;
    struct { unsigned environment, feature, tools; } state = {9, 9, 9};
    struct { unsigned version, environment, feature, tools, multi; } settings = {0};
    unsigned mode = 99, now = 99, later = 99, count = 99, persistence = 99;
    int status;
    char text[96] = "";
    int (*call)() = (int (*)())nvml_call("nvmlSystemGetConfComputeState");
    status = call ? call(&state) : -1;
    fact("nvmlSystemGetConfComputeState: status %d, environment %u, feature %u, tools mode %u", status, state.environment, state.feature, state.tools);
    call = (int (*)())nvml_call("nvmlSystemGetConfComputeSettings");
    settings.version = sizeof settings | (1u << 24);
    status = call ? call(&settings) : -1;
    fact("nvmlSystemGetConfComputeSettings: status %d, environment %u, feature %u, tools mode %u, multi-GPU mode %u", status, settings.environment, settings.feature, settings.tools, settings.multi);
    call = (int (*)())nvml_call("nvmlDeviceGetMigMode");
    status = call ? call(nvml_gpu, &now, &later) : -1;
    fact("nvmlDeviceGetMigMode: status %d, now %u, later %u", status, now, later);
    call = (int (*)())nvml_call("nvmlDeviceGetComputeMode");
    status = call ? call(nvml_gpu, &mode) : -1;
    fact("nvmlDeviceGetComputeMode: status %d, %u (0 default, 3 exclusive process)", status, mode);
    call = (int (*)())nvml_call("nvmlDeviceGetMPSComputeRunningProcesses_v3");
    struct nvml_process rows[128];
    count = 128;
    status = call ? call(nvml_gpu, &count, rows) : -1;
    fact("nvmlDeviceGetMPSComputeRunningProcesses_v3: status %d, %u processes", status, count);
    call = (int (*)())nvml_call("nvmlDeviceGetPersistenceMode");
    status = call ? call(nvml_gpu, &persistence) : -1;
    fact("nvmlDeviceGetPersistenceMode: status %d, %u", status, persistence);
    call = (int (*)())nvml_call("nvmlDeviceGetUUID");
    status = call ? call(nvml_gpu, text, 96u) : -1;
    fact("nvmlDeviceGetUUID: status %d, %zu characters", status, strlen(text));
    struct { unsigned version; unsigned long long total, reserved, free, used; } two = {0};
    two.version = sizeof two | (2u << 24);
    struct nvml_memory one = {0};
    int first = ((int (*)(void *, struct nvml_memory *))nvml_call("nvmlDeviceGetMemoryInfo"))(nvml_gpu, &one);
    call = (int (*)())nvml_call("nvmlDeviceGetMemoryInfo_v2");
    status = call ? call(nvml_gpu, &two) : -1;
    fact("memory, version 1: status %d, total %.1f free %.1f used %.1f MiB", first, one.total / (double)MIB, one.free / (double)MIB, one.used / (double)MIB);
    fact("memory, version 2: status %d, total %.1f reserved %.1f free %.1f used %.1f MiB", status, two.total / (double)MIB, two.reserved / (double)MIB, two.free / (double)MIB, two.used / (double)MIB);
    begin();
    size_t free_bytes, total_bytes, device_bytes;
    NEED(cuMemGetInfo(&free_bytes, &total_bytes));
    NEED(cuDeviceTotalMem(&device_bytes, device));
    fact("cuMemGetInfo: total %.1f free %.1f MiB; cuDeviceTotalMem %.1f MiB", total_bytes / (double)MIB, free_bytes / (double)MIB, device_bytes / (double)MIB);
    ((int (*)(void *, struct nvml_memory *))nvml_call("nvmlDeviceGetMemoryInfo"))(nvml_gpu, &one);
    fact("memory, version 1, at the same time: total %.1f free %.1f used %.1f MiB", one.total / (double)MIB, one.free / (double)MIB, one.used / (double)MIB);
    return 0;
}
