# shellcheck shell=bash
# Finds a Python for scripts/setup.sh, which sources this file and provides say and die.

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null || true; }

at_least_310() { # at_least_310 3.11.7
    local major=${1%%.*} rest=${1#*.}
    [[ -n "$1" ]] && ((major > 3 || (major == 3 && ${rest%%.*} >= 10)))
}

# In an activated environment the first python3 is that environment's, which may be the one about to be remade.
base_of() { "$1" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)'; }

# Sets base to $PYTHON if that will do, else to the best interpreter found: a tested version that can make
# environments, then a newer one that can, then any new enough. Each is run, since a version manager's shim may exist
# for a version that is not chosen.
base="" found=""
find_python() {
    local name candidate version rank best=9
    if [[ -n "${PYTHON:-}" ]]; then
        version=$(version_of "$PYTHON")
        found="PYTHON=$PYTHON ${version:-does not run}"
        if at_least_310 "$version"; then
            base=$(base_of "$PYTHON")
            return 0
        fi
        say "note: $found: looking for another"
    fi
    for name in python3 python3.13 python3.12 python3.11 python3.10 python; do
        while IFS= read -r candidate; do
            version=$(version_of "$candidate")
            found+="${found:+; }$candidate ${version:-does not run}"
            at_least_310 "$version" || continue
            rank=1
            [[ "$version" =~ ^3\.1[0-3]\. ]] && rank=0
            "$candidate" -c 'import venv, ensurepip' 2>/dev/null || rank=$((rank + 2))
            if ((rank < best)); then
                best=$rank
                base=$(base_of "$candidate")
            fi
            ((best > 0)) || return 0
        done < <(type -aP -- "$name" || true)
    done
    [[ -n "$base" ]] && return 0
    die "no usable Python: svtoolkit needs 3.10 or newer; found: ${found:-none}. Install one (apt install python3" \
        "python3-venv, brew install python, pyenv install 3.11) or name it: PYTHON=/path/to/python3 scripts/setup.sh"
}
