#!/usr/bin/env bash
# What specrt does on this machine's device: builds in place, holds every kernel against the
# reference, checks that speculation changes nothing, and measures. A table comes last, JSON and a
# log go to $OUT. At most six minutes in all.
#
#   tools/device_check.sh          runs here: an NVIDIA GPU, Python 3.11+ with CuPy, NumPy, numba,
#                                  Cython, setuptools and tokenizers, gcc and g++
#   tools/device_check.sh --pack   first, where there is a network: puts the pure Python packages
#                                  that such a machine may lack into $WHEELS
#
# DEVICE  cuda (default), emulator or cpu        OUT     a folder for results (device-check)
# PYTHON  python3                                WHEELS  .wheels of the checkout
# MODELS  GGUF files that are checked (two of tests/golden)
# MODEL   a GGUF file that is measured (a tiny one, made here)
# SECONDS_IN_ALL  360
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
device=${DEVICE:-cuda} python=${PYTHON:-python3} wheels=${WHEELS:-.wheels} out=${OUT:-device-check}
models=${MODELS:-"tests/golden/llama-quant/model.gguf tests/golden/gemma3/model.gguf"}
deadline=$((SECONDS + ${SECONDS_IN_ALL:-360}))
pure=(gguf jinja2 rich markdown-it-py mdurl pygments)

if [ "${1:-}" = --pack ]; then
    exec "$python" -m pip download -q --no-deps --only-binary=:all: -d "$wheels" "${pure[@]}"
elif [ $# != 0 ]; then
    echo "usage: [DEVICE=cuda|emulator|cpu] $0 [--pack]" >&2
    exit 2
fi

mkdir -p "$out" || exit 2
out=$(realpath "$out")
log=$out/log.txt
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
: >"$log"
export PYTHONPATH=$site:$PWD PYTHONUNBUFFERED=1
rows=() fields=() failed=0

# part NAME SECONDS COMMAND...: run a part within its time and what is left of all of it.
part() {
    local name=$1 budget=$2 start=$SECONDS status=0 left
    shift 2
    left=$((deadline - SECONDS))
    [ "$left" -lt "$budget" ] && budget=$left
    if [ "$budget" -lt 5 ]; then
        record "$name" 0 "no time left"
        return 1
    fi
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    timeout --kill-after=5 "$budget" "$@" >>"$log" 2>&1 || status=$?
    case $status in
    0) record "$name" $((SECONDS - start)) holds ;;
    124 | 137) record "$name" $((SECONDS - start)) "over its $budget s" ;;
    *) record "$name" $((SECONDS - start)) "fails ($status)" ;;
    esac
    return "$status"
}

# record NAME SECONDS VERDICT
record() {
    rows+=("$(printf '%-34s %6d s   %s' "$@")") fields+=("$@")
    [ "$3" = holds ] || failed=1
    echo "${rows[-1]}"
}

# shellcheck disable=SC2329  # a part
# Of the packages that were carried along, those that are missing.
install_missing() {
    local wheel name
    for wheel in "$wheels"/*.whl; do
        [ -e "$wheel" ] || continue
        name=$(basename "$wheel" | cut -d- -f1)
        "$python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "$name" 2>/dev/null ||
            "$python" -m pip install -q --no-index --no-deps --target "$site" "$wheel" || return 1
    done
}

# shellcheck disable=SC2329  # a part
# What was measured is of this machine.
describe() {
    "$python" --version
    if [ "$device" = cuda ]; then
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
        "$python" -c 'import cupy; cupy.show_config()'
    fi
    "$python" - <<'EOF'
from specrt.ops import cuda_problem

print("CUDA:", cuda_problem() or "usable")
EOF
}

export -f install_missing describe
export python wheels site device

case $device in
emulator) tokens=6 prompts=(--prompts prose-gpu) lossless=240 ;; # a step takes it 40 ms and more
*) tokens=48 prompts=() lossless=60 ;;
esac

part "packages" 30 bash -c install_missing
if part "build" 90 "$python" setup.py -q build_ext --inplace; then
    part "machine" 30 bash -c describe
    part "kernels against the reference" 150 \
        "$python" -m specrt.bench verify-kernels --device "$device" --json "$out/verify.json"
    for model in $models; do
        name=$(basename "$(dirname "$model")")
        part "lossless: $name" "$lossless" \
            "$python" -m specrt verify-lossless "$model" --device "$device" -n "$tokens"
    done
    model=${MODEL:-$site/tiny.gguf}
    [ -n "${MODEL:-}" ] || "$python" -c 'import sys; from tests.tiny_model import write_tiny_model
from pathlib import Path
write_tiny_model(Path(sys.argv[1]), context=2048)' "$model" >>"$log" 2>&1
    part "end to end" 60 "$python" -m specrt.bench e2e --model "$model" --device "$device" \
        --tokens "$tokens" --pairs 1 --ignore-eos "${prompts[@]}" --json "$out/e2e.json"
    if [ "$device" = cuda ]; then # the others have no times, or none of a GPU
        part "ops" 90 "$python" -m specrt.bench ops --device "$device" --json "$out/ops.json"
    fi
fi

"$python" - "$out/check.json" "$device" "${fields[@]}" <<'EOF'
import json
import sys

path, device, *fields = sys.argv[1:]
parts = [
    {"part": name, "seconds": int(seconds), "verdict": verdict}
    for name, seconds, verdict in zip(*[iter(fields)] * 3)
]
holds = all(part["verdict"] == "holds" for part in parts)
with open(path, "w") as file:
    json.dump({"check": "device", "device": device, "holds": holds, "parts": parts}, file, indent=1)
EOF
[ $failed = 0 ] || tail -n 40 "$log"
printf '\nspecrt on %s: %s\n' "$device" "$([ $failed = 0 ] && echo 'every part holds' || echo 'NOT every part holds')"
printf '%s\n' "${rows[@]}"
exit $failed
