#!/usr/bin/env bash
# Makes .venv at the repository root and installs svtoolkit into it, with the versions of constraints.txt:
#   bash scripts/setup.sh [--extras LIST]   extras of pyproject.toml, as demo,dev; they add to the ones installed before
# A second call does nothing, one after an interruption continues. Variables:
#   PYTHON=...     the Python (3.10 or newer) that a new environment is made with
#   SVT_VENV=...   where the environment lies, instead of .venv; one that is there, of venv or conda, is installed into
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu   on Linux without an NVIDIA GPU: spares several GB of CUDA

if [ -z "${BASH_VERSION:-}" ] || [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    echo "setup: this is a program for bash: run  bash scripts/setup.sh  and then  source .venv/bin/activate" >&2
    return 1 2>/dev/null || exit 1
fi
set -euo pipefail
unset PYTHONPATH PYTHONHOME CDPATH # packages on PYTHONPATH would count as installed
say() { local IFS=' ' && printf 'setup: %s\n' "$*"; }
die() { say "error: $*" >&2 && exit 1; }

[[ "${1:-}" != --help && "${1:-}" != -h ]] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit; }
[[ $# == 0 || ($# == 2 && "$1" == --extras) ]] || die "takes --extras LIST (like demo,dev) or --help, not '$*'"
asked=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd -P)
known=$(sed -n '/^\[project.opt/,/^\[/s/^\([a-z0-9_-]*\) *=.*/\1/p' "$root/pyproject.toml" | paste -sd ' ' -)
for extra in ${asked//,/ }; do
    [[ " $known " == *" $extra "* ]] || die "unknown extra '$extra': pyproject.toml has $known"
done
[[ "$(nvidia-smi -L 2>/dev/null)" != GPU* ]] || asked+=,bitsandbytes # its kernels serve the 8-bit optimizers there
elsewhere="choose another place with SVT_VENV=/path/to/environment"
venv=${SVT_VENV:-$root/.venv}
mkdir -p "$venv" || die "cannot make $venv: $elsewhere"
venv=$(cd "$venv" && pwd -P)

# Sets base to $PYTHON or the best on PATH: rather a tested version that can make environments with pip.
choose_python() {
    # A Python on PATH may be that of an environment, even of the one to make anew: its base is taken.
    local code="import sys; v = sys.version_info; assert v >= (3, 10); print(sys._base_executable)"
    local candidate wish found="" IFS=$'\n'
    for wish in "import ensurepip; assert v < (3, 14)" pass; do
        for candidate in ${PYTHON:-$(type -aP python{3,3.13,3.12,3.11,3.10,} "$venv/bin/python")}; do
            base=$("$candidate" -c "$code; $wish" 2>/dev/null) && return
            [[ $wish != pass ]] || found+="$candidate ($( ("$candidate" -V 2>&1 || true) | sed 1q)); "
        done
    done
    die "no Python of 3.10 or newer, found: ${found:-none; }install one (apt install python3 python3-venv," \
        "brew install python, pyenv install 3.11) or name it: PYTHON=/path/to/python3 bash scripts/setup.sh"
}

# The stamp: the extras; the owner, our own environment being known by its place; all that decides what is installed.
# While pip works it ends after the owner. While the environment is made it names none: then it is made anew.
stamp=$venv/.svt-stamp
write_stamp() { { "$@" >"$stamp.new" && mv "$stamp.new" "$stamp"; } || die "cannot write $stamp: free disk space"; }
describe() {
    printf '%s\n' "$extras" "$owner" "$venv $root $("$venv/bin/python" -V 2>&1)"
    awk 'FNR == 1 { keep = 1 } /^\[/ { keep = !/^\[tool\.[^h]/ } keep && !/^#/' \
        "$root/pyproject.toml" "$root/constraints.txt" "$root/tests/oracles.txt"
}

look_around() { # ends here where all is as asked for
    old_extras="" owner="" anew=""
    if [[ -f "$stamp" ]]; then
        { read -r old_extras && read -r owner; } <"$stamp" || true
    elif [[ -e "$venv/pyvenv.cfg" || -d "$venv/conda-meta" ]]; then
        owner=user
    elif [[ -n "$(find "$venv" -mindepth 1 ! -name '.svt-*')" ]]; then
        die "$venv holds files but no Python environment: move it away, or $elsewhere"
    fi
    extras=$(tr ', ' '\n' <<<"$old_extras,$asked" | LC_ALL=C sort -u | paste -sd, - | sed 's/^,//')
    [[ ! -f "$stamp" || "$(<"$stamp")" != "$(describe)" ]] || { say "$venv is up to date" && exit; }
    [[ "$owner" == user || "$owner" == "$venv" ]] &&
        "$venv/bin/python" -c "import pip, sys; assert sys.version_info >= (3, 10)" 2>/dev/null && return
    [[ "$owner" != user ]] || die "$venv, made by other means, has no Python of 3.10 or newer with pip: $elsewhere"
    anew=yes
}

pip_install() {
    say "pip install $*"
    # No isolation: the build tools are in the environment. `user = true` in pip's configuration is an error in one.
    (cd "$root" && PIP_USER=0 exec "$venv/bin/python" -m pip install --no-input --disable-pip-version-check \
        --log "$venv/setup.log" --no-build-isolation --use-pep517 -c constraints.txt "$@") </dev/null ||
        die "pip stopped (see above and $venv/setup.log). Disk full: CUDA's torch needs about 8 GB; TMPDIR=... moves" \
            "temporary files, SVT_VENV=... the environment. Index out of reach: check https_proxy, 'pip config list'." \
            "Nothing that fits this Python: remove $venv and name another with PYTHON=... Run again, this continues."
}

look_around
choose_python
trap 'say "interrupted; run the same command again to continue" >&2; exit 130' INT
exec 9>>"$venv/.svt-lock" || die "cannot write in $venv: $elsewhere"
# The lock belongs to the open file, so it goes with the last process that holds it: there are no stale ones.
lock() { "$base" -c "import fcntl; fcntl.flock(9, fcntl.LOCK_EX | $1)" 2>/dev/null; }
lock fcntl.LOCK_NB || { say "waiting for another set-up of $venv" && lock 0; } ||
    say "note: this file system has no locks: start no second set-up meanwhile"
look_around # again: the other set-up may have made it
if [[ -n "$anew" ]]; then
    say "making $venv with $("$base" -V 2>&1) ($base)"
    write_stamp printf '%s\n' "$old_extras" ""
    find "$venv" -mindepth 1 -maxdepth 1 ! -name '.svt-*' -exec rm -rf {} +
    # Debian keeps ensurepip in a package of its own, but any pip can put a pip into a folder.
    { "$base" -m venv --without-pip "$venv" && { "$venv/bin/python" -m ensurepip || PIP_USER=0 "$base" -m pip install \
        --target "$(echo "$venv"/lib/python*/site-packages)" pip; }; } ||
        die "$base cannot make an environment with pip: apt install python3-venv, or name another with PYTHON=..."
    owner=$venv
fi
write_stamp printf '%s\n' "$old_extras" "$owner" # not the new extras: one that cannot be installed must not stick
# A package whose copying was cut short has its metadata but no list of files: pip would take it for installed.
if [[ "$owner" != user ]]; then
    for half in "$venv"/lib/python*/site-packages/*.dist-info; do [[ -f "$half/RECORD" ]] || rm -rf "$half"; done
fi
pip_install setuptools hatchling editables
pip_install -e ".${extras:+[$extras]}"
[[ ",$extras," != *,dev,* ]] || pip_install --no-deps -r tests/oracles.txt # what the tests compare with
write_stamp describe
say "ready after $SECONDS s: source '$venv/bin/activate'"
