# shellcheck shell=bash disable=SC2034,SC2154
# Stages, checks and options that the recipes share. A recipe's run.sh reads like this:
#
#   . "$root/scripts/stages.sh"
#   exp_dir=exp/mini data_dirs=(data/mini) help_message="Trains the small demonstration."
#   parse_options "$@"
#   if stage_wanted 1 && ! stage_fresh 1 data/wav.scp "${overrides[@]}"; then
#       stage_begin 1 "train"
#       run_logged "$exp_dir/logs/train.log" svt train "${overrides[@]}"
#       require_file "$exp_dir/model/model.safetensors" "the trained network"
#       stage_done 1 data/wav.scp "${overrides[@]}"
#   fi
#
# A recipe declares options of its own before parse_options, which puts the value of --no-lm into own_no_lm:
#
#   own_options=("--source KIND: files or shards" "--no-lm: leave out the fine-tuning") own_source=files own_no_lm=no
#
# Written for bash 3.2 (macOS) and newer. Before 4.4 an empty array counts as unset: there `set -u` is left out.

set -eo pipefail
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then set +u; else set -u; fi

# What parse_options fills; a recipe sets its own defaults after sourcing this file.
stage=0         # the first stage to run
stop_stage=1000 # the last
exp_dir=""      # where the recipe puts what it makes
data_dirs=()    # directories of --data
overrides=()    # Hydra overrides for svt
help_message="" # the recipe's own part of --help
export SVT_RECIPE=yes # whose next command the recipe runs itself
no_setup=""     # of --no-setup: yes
nj=$(getconf _NPROCESSORS_ONLN || echo 1) # parallel jobs

# What a recipe may set besides.
takes_data=yes    # empty: the recipe has no use for --data
own_options=()    # options of its own, "--name VALUE: what it is", or "--name: what it does" where there is no value,
                  # with their values in own_name; yes for one without a value
marks_dir=""      # folder of the marks of finished stages; empty: exp_dir

_current_stage="" # the one between stage_begin and stage_done
_stage_inputs=()  # by stage: the inputs that stage_fresh was given,
_stage_prints=()  # and their fingerprint when it looked at them
_stage_made=()    # files that the current stage made, as its checks name them

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# append ARRAY WORD...: to the array of that name.
append() {
    [[ "$1" =~ ^[a-z_]+$ ]] || die "'$1' is no name of an array"
    eval "$1+=(\"\${@:2}\")"
}

# _own NAME, set_own NAME VALUE: the value of an option by its name without leading dashes.
_own() {
    local variable=own_${1//-/_}
    printf '%s\n' "${!variable:-}"
}
set_own() { printf -v "own_${1//-/_}" %s "$2"; }

# ---- options ------------------------------------------------------------------------------------------------------

# Every option as it is declared, a line each: the recipe's own, then those that all share.
_list_options() {
    local declared name value
    for declared in "${own_options[@]}"; do
        name=${declared%%[: ]*}
        value=$(_own "${name#--}")
        echo "$declared (${value:-none})"
    done
    echo "--stage N: begin with stage N ($stage)"
    echo "--stop-stage N: end after stage N ($stop_stage)"
    [[ -z "$takes_data" ]] || echo "--data DIR: a data directory; may be given several times (${data_dirs[*]:-none})"
    echo "--exp-dir DIR: where results go (${exp_dir:-none})"
    echo "--nj N: parallel jobs ($nj)"
    echo "--no-setup: take the svt on PATH, and install nothing (${no_setup:-no})"
    echo "--help: this text"
}

# The form of the option --NAME, such as "--nj N"; empty where there is no such option.
_form_of() {
    local declared
    while IFS= read -r declared; do
        declared=${declared%%: *}
        [[ "${declared%% *}" != "$1" ]] || echo "$declared"
    done < <(_list_options)
}

_print_help() {
    local declared
    [[ -z "$help_message" ]] || printf '%s\n\n' "$help_message"
    printf 'usage: %s [options] [key=value ...]\n\n' "${0##*/}"
    while IFS= read -r declared; do
        printf '  %-16s %s\n' "${declared%%: *}" "${declared#*: }"
    done < <(_list_options)
    cat <<EOF

Everything else is a Hydra override for svt: key=value, +key=value, ~key.
A stage that is finished and whose inputs are unchanged is skipped.

The environment: --no-setup takes the svt on PATH; SVT_VENV=DIR the environment there, of conda or your own, if it has
svtoolkit. Else a recipe of a clone makes .venv in it, and one from 'svt recipe' takes the environment of that svt.
EOF
}

# ---- the environment ----------------------------------------------------------------------------------------------

# use_environment [EXTRAS]: puts the svt that the stages call first on PATH. Installs into no environment but those that
# scripts/setup.sh has made.
use_environment() {
    local venv=${SVT_VENV:-$root/.venv} svt
    if [[ -n "$no_setup" ]]; then
        svt=$(command -v svt) || die "--no-setup: there is no svt on PATH; activate an environment that has svtoolkit," \
            "or leave out --no-setup"
        echo "svt: $svt (--no-setup)"
    elif [[ -z "${SVT_VENV:-}" && -f "$recipe/environment" ]]; then
        svt=$(<"$recipe/environment")
        [[ -x "$svt/svt" || -x "$svt/svt.exe" ]] || die "$svt holds no svt any more: name another environment with" \
            "SVT_VENV=DIR, or activate one and give --no-setup"
        export PATH="$svt:$PATH"
    elif _is_foreign "$venv" || [[ ! -f "$root/scripts/setup.sh" ]]; then
        "$venv/bin/python" -c "import svtoolkit" 2>/dev/null || die "SVT_VENV=$venv has no svtoolkit, and was not made by" \
            "scripts/setup.sh, so that nothing is installed into it; install it with $(_pip_command "$venv" "${1:-}")"
        PATH=$(cd -- "$venv/bin" && pwd):$PATH
        export PATH
    else
        bash "$root/scripts/setup.sh" ${1:+--extras "$1"}
        # shellcheck source=/dev/null
        . "$venv/bin/activate"
    fi
}

# require_module MODULE EXTRA: a Python package that a stage needs beside the others; installed where that is allowed.
require_module() {
    if python -c "import $1" 2>/dev/null; then return; fi
    if [[ -n "$no_setup" || ! -f "$root/scripts/setup.sh" ]] || _is_foreign "${SVT_VENV:-}"; then
        die "this stage needs the Python package $1; install it: $(command -v python) -m pip install $1"
    fi
    bash "$root/scripts/setup.sh" --extras "$2"
}

# An environment that is there and that scripts/setup.sh has not made.
_is_foreign() { [[ -n "${SVT_VENV:-}" && -x "$1/bin/python" && ! -e "$1/.svt-stamp" ]]; }

_pip_command() { # _pip_command ENVIRONMENT EXTRAS
    local package=$root
    [[ -f "$root/pyproject.toml" ]] || package=speaker-svtoolkit
    printf '%q -m pip install %q' "$1/bin/python" "$package${2:+[$2]}"
}

# --stop_stage is --stop-stage, as in the recipes of other toolkits; the value stays as it is.
_with_dashes() {
    local name=${1%%=*}
    echo "${name//_/-}${1#"$name"}"
}

whole_number() { # whole_number OPTION VALUE LEAST: prints it without leading zeros
    if ! [[ "$2" =~ ^[0-9]{1,9}$ ]] || ((10#$2 < $3)); then
        die "$1 takes a whole number of $3 or more, found '$2'"
    fi
    echo "$((10#$2))"
}

# Reads the options above into their variables. The first --data replaces the recipe's own data_dirs.
parse_options() {
    local option value form given_as given=""
    while (($# > 0)); do
        given_as=$1 option=$1 form=""
        [[ "$option" != --* ]] || option=$(_with_dashes "$option")
        shift
        case $option in
            -h | --help)
                _print_help
                exit 0
                ;;
            --*=*)
                value=${option#*=}
                option=${option%%=*}
                form=$(_form_of "$option")
                [[ -z "$form" || "$form" == *" "* ]] || die "$option takes no value, found '$value'"
                ;;
            --*)
                value=yes
                form=$(_form_of "$option")
                if [[ "$form" == *" "* ]]; then
                    [[ $# -gt 0 && "$1" != --* ]] || die "$option needs a value"
                    value=$1
                    shift
                fi
                ;;
            -*) ;;
            \~* | *=*)
                overrides+=("$option")
                continue
                ;;
            *) die "'$option' is neither an option nor an override (key=value, +key=value, ~key); see --help" ;;
        esac
        if [[ -z "$form" ]]; then
            die "unknown option '${given_as%%=*}': known are $(_list_options | sed 's/[: ].*//' | paste -sd ' ' -)"
        fi
        _take_option "$option" "$value"
    done
    ((stage <= stop_stage)) || die "--stage $stage is after --stop-stage $stop_stage: nothing would run"
}

_take_option() { # _take_option OPTION VALUE; its caller's `given` tells whether --data was there before
    case $1 in
        --stage) stage=$(whole_number "$1" "$2" 0) || exit ;;
        --stop-stage) stop_stage=$(whole_number "$1" "$2" 0) || exit ;;
        --no-setup) no_setup=$2 ;;
        --nj) nj=$(whole_number "$1" "$2" 1) || exit ;;
        *)
            [[ -n "$2" ]] || die "$1 needs a value"
            case $1 in
                --exp-dir) exp_dir=$2 ;;
                --data)
                    [[ -n "$given" ]] || data_dirs=()
                    given=yes
                    data_dirs+=("$2")
                    ;;
                *) set_own "${1#--}" "$2" ;;
            esac
            ;;
    esac
}

# ---- stages -------------------------------------------------------------------------------------------------------

stage_wanted() { (($1 >= stage && $1 <= stop_stage)); }

_mark_of() {
    [[ -n "${marks_dir:-$exp_dir}" ]] || die "exp_dir is not set: name it with --exp-dir DIR"
    echo "${marks_dir:-$exp_dir}/.stages/$1"
}

_sha256() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

# Name, size and time of change of each file directly in a directory.
_list_directory() {
    local form=(-f '%N %z %Fm') # BSD
    ! stat -c %s / >/dev/null 2>&1 || form=(-c '%n %s %.9Y')
    (CDPATH="" cd -- "$1" && find -L . -maxdepth 1 -type f -exec stat -L "${form[@]}" {} + | LC_ALL=C sort)
}

# A line for each input: a file is known by its content, a directory by its listing, anything else by itself.
_fingerprint() {
    local input sum
    echo "stage fingerprint 1"
    for input in "$@"; do
        if [[ -f "$input" ]]; then
            sum=$(_sha256 <"$input") || die "cannot read $input"
            printf 'file %s %q\n' "$sum" "$input"
        elif [[ -d "$input" ]]; then
            sum=$(_list_directory "$input" | _sha256) || die "cannot list $input"
            printf 'directory %s %q\n' "$sum" "$input"
        else
            printf 'text %q\n' "$input"
        fi
    done | _without_credentials
}

# Standard input with *** for the user and password of URLs, as svtoolkit/errors.py has it.
_without_credentials() {
    sed -E 's|([A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^/[:space:]]+@|\1***@|g'
}

# stage_fresh N INPUT...: whether stage N was finished with just these inputs (files, directories, options), and what it
# made is still there. Name what a stage reads, never what it writes: that is what its require_file and require_lines name.
stage_fresh() {
    local number=$1 mark now changed gone
    shift
    mark=$(_mark_of "$number") || exit
    now=$(_fingerprint "$@") || exit
    _stage_inputs[number]=$(printf '%q ' "$@")
    _stage_prints[number]=$now
    [[ -f "$mark" ]] || return 1
    if [[ "$(sed '/^made /d' "$mark")" == "$now" ]]; then
        gone=$(_gone_since "$mark")
        if [[ -z "$gone" ]]; then
            echo "=== stage $number: nothing has changed, skipped (to run it all the same: rm '$mark'*)"
            return 0
        fi
        echo "=== stage $number: runs again, what it made is gone: $gone"
        return 1
    fi
    changed=$(grep -Fxv -f "$mark" <<<"$now" | head -n 1 | sed -E 's/^(file|directory) [0-9a-f]+ /\1 /') || true
    echo "=== stage $number: runs again, its inputs changed: ${changed:-one was taken away}"
    return 1
}

# The first file that a finished stage made and that is no longer there. Those below the folder of the marks are named
# from it, so that all of it can be moved.
_gone_since() {
    local word file folder=${1%/.stages/*}
    while read -r word file; do
        [[ "$word" == made ]] || continue
        eval "file=$file" # as %q wrote it
        if [[ ! -f "$folder/$file" && ! -f "$file" ]]; then
            echo "$file"
            return
        fi
    done <"$1"
}

# stage_begin N TITLE: announces the stage; from now on it and all later ones count as unfinished.
stage_begin() {
    local number=$1 mark
    mark=$(_mark_of "$number") || exit
    _current_stage=$number
    _stage_made=()
    for mark in "${mark%/*}"/*; do
        if [[ "${mark##*/}" =~ ^[0-9]+$ ]] && ((${mark##*/} >= number)); then rm -f "$mark"; fi
    done
    echo "=== stage $number: $2 ($(date +%H:%M:%S))"
}

# stage_done N INPUT...: marks the stage as finished. What counts is the inputs as they were when stage_fresh looked at
# them: a file edited while the stage ran makes it run again.
stage_done() {
    local number=$1 mark print file
    shift
    mark=$(_mark_of "$number") || exit
    print=${_stage_prints[number]:-}
    if [[ -z "$print" ]]; then
        print=$(_fingerprint "$@") || exit
    elif [[ "${_stage_inputs[number]}" != "$(printf '%q ' "$@")" ]]; then
        die "stage $number: stage_done names other inputs than stage_fresh did (${_stage_inputs[number]})"
    fi
    for file in "${_stage_made[@]}"; do print+=$(printf '\nmade %q' "${file#"${mark%/.stages/*}"/}"); done
    _write_mark "$mark" "$print"
    _current_stage=""
}

# part_fresh N.NAME INPUT...: whether a part of stage N was finished with just these inputs. A stage of several long
# commands marks each as it ends, so that after a stop it resumes with the first that is missing.
part_fresh() {
    local mark print
    mark=$(_mark_of "$1") || exit
    print=$(_fingerprint "${@:2}") || exit
    [[ -f "$mark" && "$(<"$mark")" == "$print" ]]
}

part_done() { # part_done N.NAME INPUT...
    local mark print
    mark=$(_mark_of "$1") || exit
    print=$(_fingerprint "${@:2}") || exit
    _write_mark "$mark" "$print"
}

_write_mark() { # _write_mark FILE FINGERPRINT: whole or not at all
    mkdir -p "${1%/*}"
    printf '%s\n' "$2" >"$1.new"
    mv -f "$1.new" "$1"
}

# ---- checks of what a stage made ---------------------------------------------------------------------------------

_what_to_do() {
    if [[ -n "$_current_stage" ]]; then
        echo "see the output above, then run again with --stage $_current_stage (if an earlier stage should have" \
            "made it: rm -r '${marks_dir:-$exp_dir}/.stages' and run without --stage)"
    else
        echo "to make everything again: rm -r '${marks_dir:-$exp_dir}/.stages' and run without --stage"
    fi
}

# require_file FILE WHAT
require_file() {
    [[ -f "$1" ]] || die "$1 is missing, expected $2: $(_what_to_do)"
    [[ -s "$1" ]] || die "$1 is empty, expected $2: $(_what_to_do)"
    _stage_made+=("$1")
}

# require_lines FILE N WHAT: FILE has exactly N lines.
require_lines() {
    local found
    [[ -f "$1" ]] || die "$1 is missing, expected $2 lines, $3: $(_what_to_do)"
    found=$(awk 'END { print NR }' <"$1")
    ((found == $2)) || die "$1 has $found lines, expected $2, $3: $(_what_to_do)"
    _stage_made+=("$1")
}

# run_logged LOG COMMAND...: output on the terminal and appended to LOG; returns the command's status (Ctrl-C: 130).
run_logged() {
    local log=$1 statuses errexit=$- interrupted="" old_trap
    shift
    mkdir -p "$(dirname -- "$log")"
    {
        printf '# %s $' "$(date '+%Y-%m-%d %H:%M:%S')"
        printf ' %q' "$@"
        echo
    } | _without_credentials >>"$log"
    old_trap=$(trap -p INT)
    # A command that takes Ctrl-C for "save and stop" may exit with 0: the recipe must not go on to the next stage.
    trap 'interrupted=yes' INT
    set +e
    # tee -i outlives Ctrl-C to take the command's last words. Unbuffered, or Python's lines come in blocks.
    (
        export PYTHONUNBUFFERED=1
        set -e
        "$@"
    ) 2>&1 | tee -i -a "$log"
    statuses=("${PIPESTATUS[@]}")
    [[ "$errexit" != *e* ]] || set -e
    trap - INT
    [[ -z "$old_trap" ]] || eval "$old_trap"
    if [[ -n "$interrupted" ]]; then
        echo "${0##*/}: interrupted; output so far is in $log" >&2
        return 130
    fi
    ((statuses[1] == 0)) || die "cannot write the log $log"
    if ((statuses[0] != 0)); then
        printf '%s: failed with exit code %s:' "${0##*/}" "${statuses[0]}" >&2
        printf ' %q' "$@" >&2
        printf '\nits output is in %s\n' "$log" >&2
    fi
    return "${statuses[0]}"
}
