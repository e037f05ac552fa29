#!/usr/bin/env bash
# Measures all that only a GPU can say, and prints the decisions that follow:
#   bash benchmarks/gpu.sh [PART...]   parts by name, or 1, 2, 3 for runs of eight minutes; all without; --help lists them
# What a call leaves undone the next one continues. Variables:
#   SKIP="PART..."      parts to leave out
#   SVT_PYTHON=python3  a Python that has torch with CUDA: nothing is installed, what needs a missing package is left out
#   SVT_GPU_RESULTS=... folder of the JSON files, instead of benchmarks/results/gpu
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
if [[ -z "${SVT_PYTHON:-}" && " $* " != *" --help "* ]]; then
    bash scripts/setup.sh
    SVT_PYTHON=${SVT_VENV:-$root/.venv}/bin/python
fi
python=${SVT_PYTHON:-python3}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
results=${SVT_GPU_RESULTS:-$root/benchmarks/results/gpu}
code=0
"$python" -m benchmarks.gpu "$@" --skip "${SKIP:-}" --folder "$results" || code=$?
[[ $code == 2 || " $* " == *" --help "* || " $* " == *" --predict "* || " $* " == *" --summary "* ]] ||
    "$python" -m benchmarks.gpu --summary --folder "$results"
exit "$code"
