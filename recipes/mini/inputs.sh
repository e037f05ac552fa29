# shellcheck shell=bash
# What --data of run.sh has to be, and how to make it of what it is instead.

# require_split DIR: DIR holds the data directories train and eval; says how to make them of what it holds instead.
require_split() {
    local folder=${1%/} made parent expected="expected a folder with the data directories train/ and eval/"
    [[ -e "$folder" ]] || die "--data $1: there is no such folder; $expected"
    [[ -d "$folder" ]] || die "--data $1: is a file; $expected"
    if _is_split "$folder"; then return; fi
    folder=$(cd -- "$folder" && pwd)
    parent=${folder%/*}
    [[ ! -f "$folder/wav.scp" ]] || ! _is_split "$parent" ||
        die "--data $1: is one data directory; $expected: give --data $(printf '%q' "$parent")"
    made="${folder}_data"
    ! _is_split "$made" ||
        die "--data $1: holds no train/wav.scp and eval/wav.scp, but $made does: give --data $(printf '%q' "$made")"
    die "--data $1: $expected; make them with \`$(_split_command "$folder" "$made")\` and give --data" \
        "$(printf '%q' "$made")"
}

_is_split() { [[ -f "$1/train/wav.scp" && -f "$1/eval/wav.scp" ]]; }

# _split_command DIR OUT: what makes OUT/train and OUT/eval of a data directory, or of a folder a speaker.
_split_command() {
    local corpus=folders source=$1 out held
    out=$(printf '%q' "$2")
    if [[ -d "$1/train" && -d "$1/eval" && ! -f "$1/train/wav.scp" && ! -f "$1/eval/wav.scp" ]]; then
        printf 'svt prepare corpus=folders --source %q --out %q && ' "$1/train" "$2/train"
        printf 'svt prepare corpus=folders --source %q --out %q draw_trials=true' "$1/eval" "$2/eval"
        return
    fi
    [[ ! -f "$1/train/wav.scp" ]] || source="$1/train"
    if [[ -f "$source/wav.scp" ]]; then
        corpus=kaldi
        held=$(cut -d ' ' -f 2 "$source/utt2spk" | sort -u | wc -l)
    else
        held=$(find -L "$source" -mindepth 1 -maxdepth 1 -type d ! -name '.*' | wc -l)
    fi
    held=$((held / 5)) # speakers of the evaluation
    printf 'svt prepare corpus=%s --source %q --out %s eval_speakers=%d' "$corpus" "$source" "$out" \
        "$((held < 2 ? 2 : held > 40 ? 40 : held))"
}
