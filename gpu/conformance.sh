#!/usr/bin/env bash
# What a CUDA driver answers: the conformance suite, random calls by seed, and misuses.
#   gpu/conformance.sh              on the machine's own driver; needs a GPU
#   gpu/conformance.sh --virtual    on a virtual GPU, and compared with what was recorded on a real one
# Output goes to $OUT/conformance.txt (what two drivers must agree on, line by line) and $OUT/misuse.txt (a virtual GPU is
# stricter there); without OUT, to a new temporary folder. The programs are looked for in $ROTA_BUNDLE (default: gpu/bundle).
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

recorded=docs/results/conformance-h200.txt
bundle="$(realpath "${ROTA_BUNDLE:-gpu/bundle}")"
out="${OUT:-$(mktemp -d -t rota-conformance-XXXXXX)}"
mkdir -p "$out"
seeds=(1 2 3)
calls="${ROTA_CALLS:-100000}"

virtual=
on=()
case "${1:-}" in
--virtual)
    virtual=$(mktemp -d -t rota-vgpu-XXXXXX)
    trap 'rm -rf "$virtual"' EXIT
    # Preloaded, it is what dlopen("libcuda.so.1") gives, because that is the name it has.
    on=(env "LD_PRELOAD=$bundle/libvgpu.so" "ROTA_VGPU=$virtual")
    ;;
"") ;;
*)
    echo "conformance: unknown argument '$1'; there is only --virtual" >&2
    exit 2
    ;;
esac

{
    echo "# $(date -u '+%Y-%m-%d %H:%M') UTC, commit ${ROTA_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}"
    if [ -n "$virtual" ]; then
        echo "# on a virtual GPU"
    else
        echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo 'no nvidia-smi')"
    fi
} | tee "$out/conformance.txt"

failed=0
timeout -k 10 600 "${on[@]}" "$bundle/conformance" --jobs 4 2>&1 | tee -a "$out/conformance.txt" || failed=1
for seed in "${seeds[@]}"; do
    echo "== random calls, seed $seed" | tee -a "$out/conformance.txt"
    timeout -k 10 300 "${on[@]}" "$bundle/conformance" random --seed "$seed" --calls "$calls" 2>&1 | tee -a "$out/conformance.txt" || failed=1
done
echo "== misuse"
timeout -k 10 120 "${on[@]}" "$bundle/misuse" 2>&1 | tee "$out/misuse.txt" || failed=1

if [ -n "$virtual" ]; then
    echo "== compared with $recorded"
    if diff <(grep -v '^#' "$recorded") <(grep -v '^#' "$out/conformance.txt"); then
        echo "no difference"
    else
        failed=1
    fi
fi
echo "output: $out"
exit "$failed"
