#!/usr/bin/env bash
# What `rota doctor` says on this machine, without a daemon (it tries freezing itself then) and with one.
# Output goes to $OUT/doctor-h200.txt, which belongs into docs/; without OUT, to a new temporary folder.
# The programs are looked for in $ROTA_BUNDLE (default: gpu/bundle). Exits 0 if the machine is fit both times.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

bundle="$(realpath "${ROTA_BUNDLE:-gpu/bundle}")"
out="${OUT:-$(mktemp -d -t rota-doctor-XXXXXX)}"
mkdir -p "$out"
folder="$(mktemp -d -t rota-doctor-XXXXXX)"
daemon=
end() {
    [ -n "$daemon" ] && kill "$daemon" 2>/dev/null && wait "$daemon"
    rm -rf "$folder"
}
trap end EXIT

failed=0
{
    echo "# $(date -u '+%Y-%m-%d %H:%M') UTC, commit ${ROTA_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}"
    echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo 'no nvidia-smi')"
    echo "== without a daemon"
    # Where a user's own daemon would be, and none is.
    timeout -k 10 120 env -u ROTA_SOCKET XDG_RUNTIME_DIR="$folder" "$bundle/rota" doctor || failed=1
    echo "== with one"
    "$bundle/rotad" --socket "$folder/rotad.sock" --arena 4GiB >"$folder/log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        "$bundle/rota" ps --socket "$folder/rotad.sock" >/dev/null 2>&1 && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    timeout -k 10 120 "$bundle/rota" doctor --socket "$folder/rotad.sock" || { failed=1 && cat "$folder/log"; }
} > >(sed "s#$bundle/librota_\([a-z]*\).so#/usr/lib/rota/librota_\1.so#g; s#$folder/rotad.sock#/run/rota/rotad.sock#g; s#$folder/rota/rotad.sock#/run/rota/rotad.sock#g" | tee "$out/doctor-h200.txt") 2>&1
sleep 0.2
echo "output: $out"
exit "$failed"
