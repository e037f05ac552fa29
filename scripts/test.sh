#!/usr/bin/env bash
# Sets up .venv with the extras the tests need, then runs pytest on all cores. Arguments go to pytest:
#   scripts/test.sh tests/scoring -k eer
#   scripts/test.sh -m "not end_to_end"      the inner loop: without recipes, runs and networks of full size
# Its exit code is pytest's.

set -euo pipefail
begin=$SECONDS
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${SVT_VENV:-$root/.venv}
[[ "$venv" == /* ]] || venv=$PWD/$venv

bash "$root/scripts/setup.sh" --extras demo,dev

cd "$root"
# nproc would answer with these instead of the cores.
unset OMP_NUM_THREADS OMP_THREAD_LIMIT
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# One more than cores, as tests of processes wait; two a core get in each other's way, and each imports torch (0.5 GB).
workers=$((cores < 8 ? cores + 1 : 8))
# One thread a worker: several workers with a thread a core each are slower than one.
export OMP_NUM_THREADS=1
# Tests read Hydra's short messages, not its tracebacks.
unset HYDRA_FULL_ERROR
# Every worker compiles the tests and rewrites their assertions where it may not keep what it compiled.
unset PYTHONDONTWRITEBYTECODE

status=0
"$venv/bin/python" -m pytest -n "$workers" --dist worksteal "$@" || status=$?
echo "test: $((SECONDS - begin)) s in all, exit code $status"
exit "$status"
