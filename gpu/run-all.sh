#!/usr/bin/env bash
# Runs the GPU scripts named (default: all), each within its own limit, and prints one line for each at the end.
# Output of each goes to $OUT/<name>.txt, all logs to $OUT/logs.tar.gz; without OUT, to a new temporary folder.
#   gpu/run-all.sh [NAME[:ARGUMENTS] ...]      for example: gpu/run-all.sh turns four22 "mixed:--turns 50"
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

# Each script, in the order in which all are run, and the seconds it may take.
declare -A limit=()
order=()
while read -r name seconds; do
    limit[$name]=$seconds
    order+=("$name")
done <<'END'
    foreign_freeze 130
    away_calls 210
    hash 90
    checkpoint 290
    deep 250
    noise 250
    births 250
    long_kernel 310
    turns 550
    switches 570
    four22 600
    four35 600
    kernels3s 600
    kernels3s35 600
    one_ends 600
    pair 600
    six 350
    clean_read 250
    clean_audit 600
    oversize 420
    disk 600
    worker_killed 460
    worker_killed_together 120
    mixed 570
    deaths 570
    stopped 310
    limits 310
    shares 600
    overhead 600
    tenants1 600
    tenants2 600
    latency 600
    latency_kernel1 600
    latency_kernel4 600
    latency_copied 600
    latency_transformer 600
    latency_convolution 600
    latency_bursts 600
    latency_windows1 600
    latency_windows2 600
    latency_leads 600
    latency_trade 600
    latency_memory 600
    latency_priorities 600
END
# Names that are a case of a script.
declare -A script=([four22]="overfull --case four22" [four35]="overfull --case four35" [kernels3s]="overfull --case kernels3s" [kernels3s35]="overfull --case kernels3s35" [one_ends]="overfull --case one_ends" [pair]="overfull --case pair" [tenants1]="tenants --half 1" [tenants2]="tenants --half 2" [clean_read]="clean --parts read" [clean_audit]="clean --parts audit" [worker_killed]="worker_killed --parts kills" [worker_killed_together]="worker_killed --parts together")
script+=([latency]="latency --part headline" [latency_kernel1]="latency --beside 1x50us,1x50ms,1xgraphs" [latency_kernel4]="latency --beside 4x50us,4x50ms,4xgraphs")
script+=([latency_copied]="latency --service copied --setups none,own,stock --beside 1x50us,4x50us" [latency_transformer]="latency --service transformer")
script+=([latency_convolution]="latency --service convolution" [latency_bursts]="latency --service bursts" [latency_leads]="latency --part leads")
script+=([latency_windows1]="latency --part windows --service transformer" [latency_windows2]="latency --part windows --service convolution")
script+=([latency_trade]="latency --part trade" [latency_memory]="latency --part memory" [latency_priorities]="latency --part priorities")
python="${ROTA_PYTHON_HARNESS:-python3}"

names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${order[@]}")
for entry in "${names[@]}"; do
    if [ -z "${limit[${entry%%:*}]:-}" ]; then
        echo "run-all: no script named '${entry%%:*}'; there are: ${order[*]}" >&2
        exit 2
    fi
done

out="${OUT:-$(mktemp -d -t rota-gpu-XXXXXX)}"
mkdir -p "$out"
export ROTA_COMMIT="${ROTA_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}"
ROTA_LOGS="$(mktemp -d -t rota-gpu-logs-XXXXXX)"
export ROTA_LOGS PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

pack() {
    tar -C "$ROTA_LOGS" -czf "$out/logs.tar.gz.new" . 2>/dev/null && mv "$out/logs.tar.gz.new" "$out/logs.tar.gz"
}
child=
stop() {
    trap '' INT TERM HUP
    [ -n "$child" ] && kill -TERM "$child" 2>/dev/null
    [ -n "$child" ] && wait "$child"
    pack
    rm -rf "$ROTA_LOGS"
    exit 130
}
trap stop INT TERM HUP

failed=0
summary=()
for entry in "${names[@]}"; do
    name="${entry%%:*}"
    read -r -a command <<<"${script[$name]:-$name}"
    arguments=("${command[@]:1}")
    [ "$entry" = "$name" ] || read -r -a given <<<"${entry#*:}"
    [ "$entry" = "$name" ] || arguments+=("${given[@]}")
    began=$SECONDS
    # tee outlives a signal to the whole group: the script prints its result after it.
    timeout -k 30 "${limit[$name]}" "$python" "gpu/${command[0]}.py" ${arguments[@]+"${arguments[@]}"} > >(trap '' TERM INT HUP; exec tee "$out/$name.txt") 2>&1 &
    child=$!
    wait "$child"
    status=$?
    child=
    sleep 0.2
    if [ "$status" -eq 0 ]; then word=PASS; else word=FAIL; failed=1; fi
    summary+=("$(printf '%-4s  %-15s %4d s  exit %d' "$word" "$name" $((SECONDS - began)) "$status")")
    pack
done

echo "== all"
printf '%s\n' "${summary[@]}"
echo "output: $out"
rm -rf "$ROTA_LOGS"
exit "$failed"
