#!/usr/bin/env bash
# Makes .venv at the repository root and installs svtoolkit into it, with the versions of constraints.txt.
#
#   scripts/setup.sh [--extras demo,dev]     set up, or bring up to date; a second call does nothing and is quick
#   source scripts/setup.sh [...]            the same, then activates the environment in this shell (bash)
#
#   --extras LIST   extras of pyproject.toml, comma-separated; they add to the ones installed before
#   PYTHON=...      the Python (3.10 or newer) that a new environment is made with
#   SVT_VENV=...    where the environment lies, instead of .venv at the repository root
#
# pip takes torch from the package index you have configured. On Linux PyPI's build brings CUDA (several GB more);
# without an NVIDIA GPU: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu scripts/setup.sh
# It may be interrupted at any time: the next call continues. To begin anew, remove the environment's folder.

if [ -z "${BASH_VERSION:-}" ]; then
    echo "setup: this is a bash script: run it as  bash scripts/setup.sh" >&2
    # shellcheck disable=SC2317
    return 1 2>/dev/null || exit 1
elif [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    # A shell that sources this must not inherit its `set -e` or be closed by its `exit`.
    # shellcheck disable=SC1091
    bash "${BASH_SOURCE[0]}" "$@" && . "${SVT_VENV:-$(dirname "${BASH_SOURCE[0]}")/../.venv}/bin/activate"
    return
fi

set -euo pipefail
unset PYTHONPATH PYTHONHOME CDPATH # packages on PYTHONPATH would count as installed
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
say() { printf 'setup: %s\n' "$*"; }
die() { say "error: $*" >&2 && exit 1; }

asked="" known=$(sed -n '/^\[project.opt/,/^\[/s/^\([a-z0-9_-]*\) *=.*/\1/p' "$root/pyproject.toml" | paste -sd ' ' -)
while (($# > 0)); do
    case $1 in
        --extras=*) asked+=",${1#*=}" ;;
        --extras)
            (($# > 1)) || die "--extras needs a value, for example --extras demo,dev"
            asked+=",$2" && shift ;;
        -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit ;;
        *) die "unknown argument '$1': known are --extras LIST and --help" ;;
    esac
    shift
done
for extra in ${asked//,/ }; do
    [[ " $known " == *" $extra "* ]] || die "unknown extra '$extra': pyproject.toml has $known"
done
venv=${SVT_VENV:-$root/.venv}
[[ "$venv" == /* ]] || venv=$PWD/$venv
[[ ! -d "$venv" ]] || venv=$(cd "$venv" && pwd -P)

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null || echo "does not run"; }

# base_of PYTHON CODE: prints its executable (not that of an environment) where it is new enough and the code runs.
base_of() {
    "$1" -c "import sys; v = sys.version_info; assert v >= (3, 10); $2
print(getattr(sys, '_base_executable', None) or sys.executable)" </dev/null 2>/dev/null
}

# Sets base to $PYTHON if that will do, else to the best on PATH: a tested version that makes environments with pip, a
# newer one that does, any. Each is run: a version manager may have a shim for a version that is not there.
choose_python() {
    local candidates candidate code found=""
    if [[ -n "${PYTHON:-}" ]]; then
        ! base=$(base_of "$PYTHON" pass) || return 0
        say "note: PYTHON=$PYTHON $(version_of "$PYTHON"): looking for another"
    fi
    candidates=$(type -aP python3 python3.13 python3.12 python3.11 python3.10 python || true)
    for code in "import ensurepip; assert v < (3, 14)" "import ensurepip" pass; do
        while IFS= read -r candidate; do
            ! base=$(base_of "$candidate" "$code") || return 0
        done <<<"$candidates"
    done
    while IFS= read -r candidate; do found+="; ${candidate:+$candidate $(version_of "$candidate")}"; done <<<"$candidates"
    die "no usable Python: svtoolkit needs 3.10 or newer; found: ${found:2}. Install one (apt install python3" \
        "python3-venv, brew install python, pyenv install 3.11) or name it: PYTHON=/path/to/python3 scripts/setup.sh"
}

stamp=$venv/.svt-stamp
write_stamp() { "$@" >"$stamp.new" && mv "$stamp.new" "$stamp"; }
describe() { # the stamp: extras, place, and all that decides what is installed
    printf '%s\n' "$extras" "$venv" "$root $(version_of "$venv/bin/python")"
    awk 'FNR == 1 { keep = 1 } /^\[/ { keep = !/^\[tool\.[^h]/ } keep && !/^#/' \
        "$root/pyproject.toml" "$root/constraints.txt" "$root/tests/oracles.txt"
}

# Ends here where all is as asked for. Sets base, and anew where the environment must be made with it.
look_around() {
    local old_venv=""
    old_extras="" anew=""
    [[ ! -f "$stamp" ]] || { read -r old_extras && read -r old_venv; } <"$stamp"
    extras=$(tr ', ' '\n' <<<"$old_extras,$asked" | LC_ALL=C sort -u | paste -sd, - | sed 's/^,//')
    [[ ! -f "$stamp" || "$(<"$stamp")" != "$(describe)" ]] || { say "$venv is up to date" && exit; }
    if [[ ! -e "$venv/pyvenv.cfg" || -e "$venv/.svt-making" ]]; then
        [[ -e "$venv/.svt-making" || ! -d "$venv" || -z "$(find "$venv" -mindepth 1 ! -name .svt-lock)" ]] ||
            die "$venv holds files but no Python environment: name another folder with SVT_VENV=... or move it away"
        anew="making $venv"
    elif [[ -f "$stamp" && "$old_venv" != "$venv" ]] || ! base=$(base_of "$venv/bin/python" pass); then
        [[ -f "$stamp" ]] || die "$venv holds no Python of 3.10 or newer, its Python $(version_of "$venv/bin/python"):" \
            "remove that folder, or name another with SVT_VENV=..."
        anew="$venv was moved, or its Python is gone: making it anew"
    fi
    if [[ -n "$anew" ]]; then
        choose_python
    elif [[ -n "${PYTHON:-}" && "$(version_of "$PYTHON")" != "$(version_of "$base")" ]]; then
        say "note: $venv keeps its Python $(version_of "$base"): to have PYTHON=$PYTHON, remove that folder first"
    fi
}

pip_install() {
    say "pip install $*"
    # No isolation: the build tools are in the environment. `user = true` in pip's configuration is an error in one.
    (cd "$root" && PIP_USER=0 exec "$venv/bin/python" -m pip install --no-input --disable-pip-version-check \
        --log "$venv/setup.log" --no-build-isolation --use-pep517 -c constraints.txt "$@") </dev/null && return
    local reason="pip stopped"
    case $(<"$venv/setup.log") in
        *'No space left on device'* | *'quota exceeded'*)
            reason="the disk is full: free some space (a CUDA build of torch needs about 8 GB; TMPDIR=... moves pip's \
temporary files), or put the environment elsewhere with SVT_VENV=..." ;;
        *'connection broken'* | *ConnectionError* | *ConnectTimeout* | *ProxyError* | *SSLError*)
            reason="the package index cannot be reached: check the network, https_proxy and 'pip config list'" ;;
        *'No matching distribution found'* | *ResolutionImpossible*)
            reason="the package index has nothing that fits Python $(version_of "$venv/bin/python") on this machine: \
remove $venv and name another Python with PYTHON=..." ;;
    esac
    die "$reason (pip's message stands above, its whole log in $venv/setup.log). Running this again continues."
}

look_around
mkdir -p "$venv" || die "cannot write $venv: choose another place with SVT_VENV=/path/to/environment"
venv=$(cd "$venv" && pwd -P)
trap 'say "interrupted; run the same command again to continue" >&2; exit 130' INT
# The lock belongs to the open file, so it goes with the last process that holds it: there are no stale ones.
exec 9>>"$venv/.svt-lock"
"$base" -c 'import fcntl
try: fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("setup: another set-up of this environment is running: waiting for it", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError: print("setup: this file system has no locks: do not start a second set-up meanwhile")'
look_around # again: the other set-up may have made it
if [[ -n "$anew" ]]; then
    say "$anew, with Python $(version_of "$base") ($base)"
    touch "$venv/.svt-making"
    find "$venv" -mindepth 1 -maxdepth 1 ! -name .svt-lock ! -name .svt-making -exec rm -rf {} +
    # Debian keeps ensurepip in a package of its own, but any pip can put a pip into a folder.
    { "$base" -m venv --without-pip "$venv" && { "$venv/bin/python" -m ensurepip || PIP_USER=0 "$base" -m pip install \
        --target "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" pip; }; } ||
        die "$base cannot make an environment with pip (the reason stands above): apt install python3-venv (Debian," \
            "Ubuntu), or name another Python with PYTHON=..."
fi
# Not the new extras: one that cannot be installed must not stick.
write_stamp printf '%s\n' "$old_extras" "$venv"
rm -f "$venv/.svt-making" "$venv/setup.log"
# A package whose copying was cut short has its metadata but no list of files: pip would take it for installed.
for metadata in "$venv"/lib/python*/site-packages/*.dist-info; do [[ -f "$metadata/RECORD" ]] || rm -rf "$metadata"; done
pip_install setuptools hatchling editables
pip_install -e ".${extras:+[$extras]}"
[[ ",$extras," != *,dev,* ]] || pip_install --no-deps -r tests/oracles.txt # what the tests compare with
write_stamp describe
say "ready after $SECONDS s: source '$venv/bin/activate'"
