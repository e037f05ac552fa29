#!/usr/bin/env bash
# Makes .venv at the repository root and installs svtoolkit into it, with the versions of constraints.txt.
#
#   scripts/setup.sh [--extras demo,dev]     set up, or bring up to date; a second call does nothing and is quick
#   source scripts/setup.sh [...]            the same, then activates the environment in this shell (bash)
#
#   --extras LIST   extras of pyproject.toml, comma-separated; they add to the ones installed before
#   --help          this text
#
#   PYTHON=...      the Python (3.10 or newer) that a new environment is made with
#   SVT_VENV=...    where the environment lies, instead of .venv at the repository root
#
# pip takes torch from the package index you have configured. On Linux PyPI's build brings CUDA (several GB more);
# without an NVIDIA card: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu scripts/setup.sh
# It may be interrupted at any time: the next call goes on. To begin anew, remove the environment's folder.

if [ -z "${BASH_VERSION:-}" ]; then
    echo "setup: this is a bash script: run it as  bash scripts/setup.sh" >&2
    # shellcheck disable=SC2317
    return 1 2>/dev/null || exit 1
fi
if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    # A shell that sources this must not inherit its `set -e` or be closed by its `exit`.
    # shellcheck disable=SC1091
    bash "${BASH_SOURCE[0]}" "$@" && . "${SVT_VENV:-$(dirname "${BASH_SOURCE[0]}")/../.venv}/bin/activate"
    return
fi

set -euo pipefail
# Packages on PYTHONPATH would count as installed, and PYTHONHOME would mislead the new interpreter.
unset PYTHONPATH PYTHONHOME CDPATH

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
needed_mb=2500      # torch's CPU build and the rest of the tested set, installed, and pip's copy while unpacking
needed_again_mb=500 # the same once torch is there

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}

# shellcheck source=scripts/find_python.sh
. "$root/scripts/find_python.sh"
# shellcheck source=scripts/pip_install.sh
. "$root/scripts/pip_install.sh"

# ---- what is asked for ------------------------------------------------------------------------------------------

known_extras() {
    awk '/^\[/ { inside = ($0 ~ /^\[project\.optional-dependencies\]/); next }
         inside && /^[A-Za-z0-9_-]+ *=/ { sub(/ *=.*/, ""); print }' "$root/pyproject.toml" | paste -sd ' ' -
}

wanted_extras=""
parse_arguments() {
    local list extra
    while (($# > 0)); do
        case $1 in
            --extras)
                (($# >= 2)) || die "--extras needs a value, for example --extras demo,dev"
                list=$2
                shift
                ;;
            --extras=*) list=${1#--extras=} ;;
            -h | --help)
                sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
                exit 0
                ;;
            *) die "unknown argument '$1': known are --extras LIST and --help" ;;
        esac
        for extra in ${list//,/ }; do
            [[ " $(known_extras) " == *" $extra "* ]] ||
                die "unknown extra '$extra': pyproject.toml has $(known_extras)"
            wanted_extras+=" $extra"
        done
        shift
    done
}

union() { printf '%s\n' "$@" | tr ' ' '\n' | grep . | LC_ALL=C sort -u | paste -sd ' ' - || true; }

# ---- the stamp: what the environment was last set up with -----------------------------------------------------

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | awk '{ print $1 }'
}

wanted_hash() {
    {
        echo "$root"
        awk '/^\[/ { inside = ($0 ~ /^\[(build-system|project|tool\.hatch)[].]/) } inside' "$root/pyproject.toml"
        grep -hv '^#' "$root/constraints.txt" "$root/tests/oracles.txt"
    } | sha256
}

stamp_state="" stamp_hash="" stamp_python="" stamp_extras="" stamp_venv=""
read_stamp() {
    local key value
    stamp_state="" stamp_hash="" stamp_python="" stamp_extras="" stamp_venv=""
    [[ -f "$venv/.svt-setup" ]] || return 0
    while IFS='=' read -r key value; do
        case $key in
            state) stamp_state=$value ;;
            hash) stamp_hash=$value ;;
            python) stamp_python=$value ;;
            extras) stamp_extras=$value ;;
            venv) stamp_venv=$value ;;
        esac
    done <"$venv/.svt-setup"
}

write_stamp() { # write_stamp STATE EXTRAS
    printf 'state=%s\nhash=%s\npython=%s\nextras=%s\nvenv=%s\n' \
        "$1" "$hash" "$(version_of "$venv/bin/python")" "$2" "$venv" >"$venv/.svt-setup.new"
    mv "$venv/.svt-setup.new" "$venv/.svt-setup"
}

up_to_date() {
    read_stamp
    [[ "$stamp_state" == "done" && "$stamp_hash" == "$hash" && "$stamp_venv" == "$venv" ]] &&
        [[ "$(union "$stamp_extras $wanted_extras")" == "$stamp_extras" ]] &&
        [[ "$(version_of "$venv/bin/python")" == "$stamp_python" ]]
}

# ---- one set-up at a time -----------------------------------------------------------------------------------------

# The lock belongs to the open file, so it is gone with the last process that holds it: there are no stale ones.
take_lock() {
    local python=$1 status=0
    mkdir -p "$venv" || die "cannot write $venv: choose another place with SVT_VENV=/path/to/environment"
    exec 9>>"$venv/.svt-lock"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null || status=$?
    ((status != 0)) || return 0
    say "another set-up of $venv is at work (or its file system has no locks): waiting for it"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' 2>/dev/null ||
        say "$venv cannot be locked; going on: do not start a second set-up meanwhile"
}

# ---- the environment ----------------------------------------------------------------------------------------------

has_pip() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

# Folders that are neither empty nor environments are never touched.
check_place() {
    [[ -d "$venv" && ! -e "$venv/pyvenv.cfg" && ! -e "$venv/.svt-making" ]] || return 0
    [[ -z "$(find "$venv" -mindepth 1 -maxdepth 1 ! -name .svt-lock | head -n 1)" ]] ||
        die "$venv holds files but no Python environment: name another folder with SVT_VENV=... or move it away"
}

check_space() {
    local needed=$needed_mb place=$venv free
    if compgen -G "$venv/lib/python*/site-packages/torch-*.dist-info" >/dev/null; then needed=$needed_again_mb; fi
    while [[ ! -d "$place" ]]; do place=$(dirname "$place"); done
    free=$(free_mb "$place")
    if [[ -n "$free" ]] && ((free < needed)); then
        die "not enough disk space at $place: about $needed MB are needed, $free MB are free; free some," \
            "or put the environment elsewhere with SVT_VENV=/path/to/environment"
    fi
}

make_environment() {
    [[ -n "$base" ]] || find_python
    say "making $venv with Python $(version_of "$base") ($base)"
    : >"$venv/.svt-making"
    find "$venv" -mindepth 1 -maxdepth 1 ! -name .svt-lock ! -name .svt-making -exec rm -rf {} +
    if "$base" -c 'import venv' 2>/dev/null; then
        "$base" -m venv --without-pip "$venv" || die "python -m venv failed for $venv (its message stands above)"
    elif "$base" -m virtualenv --version >/dev/null 2>&1; then
        "$base" -m virtualenv --quiet "$venv" || die "virtualenv failed for $venv (its message stands above)"
    else
        no_venv_module
    fi
    add_pip
    rm -f "$venv/.svt-making"
}

no_venv_module() {
    die "$base cannot make environments (no venv or ensurepip module): apt install python3-venv (Debian, Ubuntu)," \
        "or $base -m pip install --user virtualenv; then run this again"
}

add_pip() {
    if has_pip; then return 0; fi
    say "adding pip to the environment"
    if "$venv/bin/python" -m ensurepip --default-pip >"$venv/setup.log" 2>&1 && has_pip; then return 0; fi
    # Debian keeps ensurepip in a package of its own; the system's pip can put a pip into the environment.
    [[ -n "$base" ]] || find_python
    if "$base" -m pip --python "$venv/bin/python" install --quiet pip >>"$venv/setup.log" 2>&1 && has_pip; then
        return 0
    fi
    tail -n 5 "$venv/setup.log" | sed 's/^/    /' >&2
    no_venv_module
}

# Leaves an environment that runs and has pip: the one that is there, or a new one.
ensure_environment() {
    local version ours=""
    if [[ -e "$venv/.svt-setup" || "$venv" == "$root/.venv" ]]; then ours=yes; fi
    if [[ ! -e "$venv/pyvenv.cfg" || -e "$venv/.svt-making" ]]; then
        make_environment
        return
    fi
    version=$(version_of "$venv/bin/python")
    if [[ -z "$version" || (-n "$stamp_venv" && "$stamp_venv" != "$venv") ]]; then
        [[ -n "$ours" ]] || die "the environment $venv does not run: remove it, or name another with SVT_VENV=..."
        say "$venv was moved, or its Python is gone: making it anew"
        make_environment
        return
    fi
    at_least_310 "$version" ||
        die "$venv holds Python $version, svtoolkit needs 3.10 or newer: remove it (rm -rf '$venv') and run this again"
    [[ "$stamp_state" != installing ]] || forget_half_installed
    add_pip
}

# PYTHON only has a say when an environment is made.
note_other_python() {
    local asked
    [[ -n "${PYTHON:-}" && -x "$venv/bin/python" ]] || return 0
    asked=$(version_of "$PYTHON")
    if [[ -n "$asked" && "$asked" != "$(version_of "$venv/bin/python")" ]]; then
        say "note: $venv keeps its Python $(version_of "$venv/bin/python"); to have $asked, remove that folder first"
    fi
}

interrupted() {
    echo >&2
    echo "setup: interrupted; run the same command again to go on" >&2
    exit 130
}

main() {
    local extras all_extras runner
    parse_arguments "$@"
    venv=${SVT_VENV:-$root/.venv}
    [[ "$venv" == /* ]] || venv=$PWD/$venv
    [[ ! -d "$venv" ]] || venv=$(cd "$venv" && pwd -P)
    [[ -f "$root/constraints.txt" ]] || die "$root/constraints.txt is missing: run this in a complete checkout"
    hash=$(wanted_hash)
    note_other_python
    if up_to_date; then
        say "$venv is up to date"
        return 0
    fi
    trap interrupted INT
    check_place
    check_space
    runner=$venv/bin/python
    if ! at_least_310 "$(version_of "$runner")"; then
        find_python
        runner=$base
    fi
    take_lock "$runner"
    venv=$(cd "$venv" && pwd -P)
    if up_to_date; then
        say "$venv is up to date"
        return 0
    fi
    extras=$(union "$stamp_extras $wanted_extras")
    all_extras=${extras:+[${extras// /,}]}
    ensure_environment
    write_stamp installing "$stamp_extras" # not the new ones: an extra that cannot be installed must not stick
    : >"$venv/setup.log"
    local torch_pin
    torch_pin=$(grep '^torch==' "$root/constraints.txt" | sed 's/ *;.*//')
    pip_install "installing $torch_pin and the build tools (log: $venv/setup.log)" \
        "$torch_pin" setuptools hatchling editables
    pip_install "installing svtoolkit$all_extras with the versions of constraints.txt" -e ".$all_extras"
    if [[ " $extras " == *" dev "* ]]; then
        pip_install "installing what the tests compare with (tests/oracles.txt)" --no-deps -r tests/oracles.txt
    fi
    write_stamp "done" "$extras"
    say "ready after $SECONDS s: source '$venv/bin/activate'"
}

main "$@"
