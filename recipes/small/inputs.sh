# shellcheck shell=bash
# What --data of run.sh has to be, and how many speakers it needs.

# require_recordings DIR: DIR is a data directory, or holds a folder a speaker.
require_recordings() {
    local expected="expected a folder with a folder of recordings for each speaker, or a data directory with wav.scp"
    [[ -e "$1" ]] || die "--data $1: there is no such folder; $expected"
    [[ -d "$1" ]] || die "--data $1: is a file; $expected"
    [[ ! -f "$1/wav.scp" ]] || return 0
    [[ ! -f "$1/train/wav.scp" ]] ||
        die "--data $1: holds data directories; name them: --data $(printf '%q' "$1/train") and the others, each with --data"
    [[ -n "$(find -L "$1" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -print -quit)" ]] ||
        die "--data $1: holds no folder; $expected"
}

# require_speakers DIR FOLDS: enough for trials in each fold, and for the back end that the others train.
require_speakers() {
    local found fewer="" least=$((2 * $2 > 6 ? 2 * $2 : 6))
    found=$(cut -d ' ' -f 2 "$1/utt2spk" | sort -u | awk 'END { print NR }')
    ((found < 6)) || fewer="give --folds $((found / 2)) or "
    ((found >= least)) ||
        die "$1 has $found speakers, and --folds $2 needs $least: ${fewer}recordings of more speakers"
}
