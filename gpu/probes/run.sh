#!/usr/bin/env bash
# Builds and runs all probes, prints FACT lines, FAIL where a probe itself broke. Needs no rota. About two minutes.
# `early` takes another minute and a quarter, and runs only where it is named.
#   gpu/probes/run.sh [residue|nvml|capture|ipc|launches|host_memory|lanes|ways_in|places|swap|placement|freeze_twice|early ...]
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
here=$PWD
python="${ROTA_PYTHON:-python3}"
out="${OUT:-$(mktemp -d -t rota-probes-XXXXXX)}"
mkdir -p "$out"
work="$(mktemp -d -t rota-probes-work-XXXXXX)"
trap 'rm -rf "$work"' EXIT
cuda="$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")"
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(nvml launches capture residue ipc host_memory lanes ways_in places swap placement freeze_twice)
failed=0

fail() { echo "FAIL  $*"; failed=1; }
# build TARGET SOURCE FLAGS...: nvcc finds cuda.h and libcuda wherever they are.
build() {
    local target="$1" source="$2"
    shift 2
    nvcc -O2 -w -o "$work/$target" "$source" "$@" -ldl >"$work/build.txt" 2>&1 || { fail "build of $source: $(tail -5 "$work/build.txt")"; return 1; }
}
# bounded SECONDS WHAT COMMAND...: a probe that fails or hangs is said.
bounded() {
    local seconds="$1" what="$2" status=0
    shift 2
    timeout -k 5 "$seconds" "$@" || status=$?
    [ "$status" -eq 0 ] || fail "$what ended with $status (124: not done after $seconds s)"
}

# Where the loader finds a library: asked of a process that has it loaded.
real_library() {
    "$python" -c 'import ctypes, sys
ctypes.CDLL(sys.argv[1])
stem = sys.argv[1].split(".so")[0] + ".so"
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/" + stem in line))' "$1"
}

probe_nvml() {
    local real
    real="$(real_library libnvidia-ml.so.1)"
    [ -n "$real" ] || { fail "NVML is not there"; return; }
    echo "FACT  NVML is $real"
    nm -D --defined-only "$real" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort >"$out/nvml-symbols.txt" && echo "FACT  NVML exports $(wc -l <"$out/nvml-symbols.txt") symbols (nvml-symbols.txt)"
    real="$(real_library libcuda.so.1)"
    [ -n "$real" ] || { fail "libcuda is not there"; return; }
    nm -D --defined-only "$real" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort >"$out/cuda-symbols.txt" && echo "FACT  libcuda exports $(wc -l <"$out/cuda-symbols.txt") symbols (cuda-symbols.txt), at $real"
    build nvml nvml.c -lcuda && bounded 20 nvml "$work/nvml"

    local smi fake="$work/fake"
    smi="$(command -v nvidia-smi)"
    mkdir -p "$fake"
    gcc -shared -fPIC -O2 -Wl,-soname,libnvidia-ml.so.1 -o "$fake/libnvidia-ml.so.1" fake_nvml.c || fail "build of fake_nvml.c"
    echo "FACT  nvidia-smi is $(readlink -f "$smi"), needs: $(objdump -p "$smi" 2>/dev/null | awk '/NEEDED/ { printf "%s ", $2 } /RUNPATH|RPATH/ { printf "[%s %s] ", $1, $2 }')"
    LD_DEBUG=files,libs timeout 20 nvidia-smi -L >"$work/smi.txt" 2>"$work/nvidia-smi-loads.txt"
    grep -E 'calling init|trying file' "$work/nvidia-smi-loads.txt" | grep -E 'nvidia-ml' | sed 's/^ *[0-9]*:[[:space:]]*/FACT  nvidia-smi, LD_DEBUG: /' | sort -u | head -8
    grep -aoE '[^[:cntrl:]]*libnvidia-ml[^[:cntrl:]]*' "$smi" 2>/dev/null | sort -u | head -5 | sed 's/^/FACT  string in nvidia-smi: /'
    local way
    for way in "LD_PRELOAD=$fake/libnvidia-ml.so.1" "LD_LIBRARY_PATH=$fake"; do
        env "$way" timeout 20 nvidia-smi -L >"$work/smi.txt" 2>&1
        echo "FACT  nvidia-smi -L with ${way%%=*}: exit $?, $(tr '\n' '|' <"$work/smi.txt" | cut -c1-260)"
        env "$way" timeout 20 "$python" -c 'import ctypes; print("answer", ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2())' >"$work/smi.txt" 2>&1
        echo "FACT  python ctypes with ${way%%=*}: exit $?, $(tr '\n' '|' <"$work/smi.txt" | cut -c1-200)"
    done
    LD_PRELOAD="$fake/libnvidia-ml.so.1" timeout 60 "$python" -c 'import torch; print("used", torch.cuda.device_memory_used())' >"$work/smi.txt" 2>&1
    echo "FACT  torch.cuda.device_memory_used with LD_PRELOAD: exit $?, $(tail -3 "$work/smi.txt" | tr '\n' '|' | cut -c1-260)"
}

probe_launches() {
    gcc -shared -fPIC -O2 -w -I"$cuda/include" -o "$work/count.so" count.c -ldl 2>"$work/build.txt" || { fail "build of count.c: $(tail -5 "$work/build.txt")"; return; }
    build launches launches.cu -cudart static -arch=native && bounded 30 launches env LD_PRELOAD="$work/count.so" "$work/launches"
    local framework
    for framework in torch cupy jax; do
        bounded 60 "launches of $framework" env LD_PRELOAD="$work/count.so" "$python" launches.py "$framework"
    done
}

probe_capture() { build capture capture.c -lcuda && bounded 40 capture "$work/capture"; }
probe_ipc() { build ipc ipc.c -lcuda && bounded 30 ipc "$work/ipc"; }
probe_lanes() {
    build lanes lanes.cu -arch=native -lcuda || return
    local kind
    for kind in none create map createmap import big fresh; do bounded 30 lanes "$work/lanes" measure $kind; done
    echo "FACT  the same while another process does it:"
    for kind in create map createmap import big; do
        "$work/lanes" disturb $kind 5 &
        sleep 1
        bounded 30 lanes "$work/lanes" measure none
        wait
    done
}
probe_ways_in() { build ways_in ways_in.cu -arch=native -lcuda && bounded 60 ways_in "$work/ways_in"; }
probe_places() { build places places.cu && bounded 90 places "$work/places"; }
probe_swap() { build swap swap.cu -arch=native && bounded 90 swap "$work/swap"; }
probe_host_memory() { build host_memory host_memory.c -lcuda && bounded 60 host_memory "$work/host_memory"; }
probe_placement() {
    nvcc -O2 -w -arch=native -cubin -o "$work/placement.cubin" placement.cu >"$work/build.txt" 2>&1 || { fail "build of placement.cu: $(tail -5 "$work/build.txt")"; return; }
    build placement placement.cu -arch=native -lcuda || return
    local process
    for process in 1 2 3 4; do
        bounded 20 placement "$work/placement" "$work/placement.cubin" "process $process"
    done
}
probe_freeze_twice() {
    build foreign_freeze ../programs/foreign_freeze.c -Xcompiler -rdynamic -lcuda && bounded 30 freeze_twice "$python" freeze_twice.py "$work/foreign_freeze"
}
probe_early() { build early early.cu -Xcompiler -rdynamic -lcuda -lpthread && bounded 125 early "$work/early"; }
probe_residue() {
    build residue residue.c -lcuda && bounded 60 residue "$work/residue"
    local framework
    for framework in torch cupy jax; do
        bounded 60 "residue of $framework" "$python" residue.py "$framework"
    done
}

for name in "${names[@]}"; do
    echo "== probe $name"
    began=$SECONDS
    "probe_$name" 2>&1 | tee "$out/probe-$name.txt"
    ! grep -q '^FAIL' "$out/probe-$name.txt" || failed=1
    echo "   $name: $((SECONDS - began)) s"
done
echo "output: $out"
exit "$failed"
