#!/usr/bin/env bash
# From a folder of recordings to a network with figures that rest on every speaker. See README.md beside this file.
set -eo pipefail

recipe=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$recipe/../.." && pwd)
stages="$recipe/stages.sh" # where `svt recipe` puts it
[[ -f "$stages" ]] || stages="$root/scripts/stages.sh"
# shellcheck source=scripts/stages.sh
. "$stages"
# shellcheck source=recipes/small/inputs.sh
. "$recipe/inputs.sh"

stop_stage=5
exp_dir="$recipe/exp/synthetic"
own_options=("--minutes N: of each training, of which there are FOLDS and one" "--folds N: parts of the speakers"
    "--networks N: trained of each fold and of all speakers, of other seeds, and scored as one")
own_minutes=60 own_folds=5 own_networks=1
help_message="Trains a speaker-verification network on few speakers, cross-validated: every speaker is held out once, so that the
error rate and the threshold of the released network rest on all of them.

--data DIR is a folder with a folder of recordings for each speaker, or a Kaldi data directory; several are joined.
Without it a corpus of synthetic speakers is made: nothing is downloaded.

stages: 1 prepare and validate, 2 cross-validate, 3 train on all speakers, 4 average, threshold, back end, 5 report

Overrides go to 'svt crossval' and 'svt train', except those that begin with prepare. crossval. average. embed. evaluate.
or report.: they go to that command without the prefix (crossval.seeds=[1,2,3]). trainer.epochs=N takes the place of
--minutes. data.root=DIR is what relative paths of a data directory are taken from."
parse_options "$@"
minutes=$(whole_number --minutes "$own_minutes" 1)
folds=$(whole_number --folds "$own_folds" 2)
networks=$(whole_number --networks "$own_networks" 1)

# ---- which override is for which command ----
prepare=() crossval=(folds="$folds" average=9 "backends=[cosine,as-norm,plda]") average=() embed=() evaluate=() report=() train=()
data_root=() experiment=(experiment=small) epochs="" seed=42
for override in "${overrides[@]}"; do
    case $override in
        prepare.* | crossval.* | average.* | embed.* | evaluate.* | report.*)
            append "${override%%.*}" "${override#*.}"
            ;;
        data.root=*) data_root=(--root "${override#*=}") ;; # prepared directories hold absolute paths
        experiment=*) experiment=("$override") ;;
        trainer.epochs=*) epochs=${override#*=} ;;
        seed=*) seed=${override#*=} ;;
        *) train+=("$override") ;;
    esac
done
seed=$(whole_number seed "$seed" 0)
crossval+=(seed="$seed")
if ((networks > 1)); then crossval+=(seeds="[$(seq -s , "$seed" $((seed + networks - 1)))]" ensemble=true); fi
if [[ -n "$epochs" ]]; then crossval+=(trainer.epochs="$epochs"); else crossval+=(minutes="$minutes"); fi

use_environment demo

data="$exp_dir/data"
model="$exp_dir/model"
folded="$exp_dir/crossval" scored="$exp_dir/crossval" runs=("$exp_dir")
if ((networks > 1)); then scored="$folded/ensemble"; fi
for ((number = 2; number <= networks; number++)); do runs+=("$exp_dir/network$number"); done

# ---- stage 1: prepare and validate ----
inputs=(--seeded "${prepare[@]}" "${data_root[@]}" "${data_dirs[@]}")
for directory in "${data_dirs[@]}"; do [[ ! -f "$directory/wav.scp" ]] || inputs+=("$directory"/{wav.scp,utt2spk}); done
if stage_wanted 1 && ! stage_fresh 1 "${inputs[@]}"; then
    stage_begin 1 "prepare and validate data"
    sources=()
    for place in "${!data_dirs[@]}"; do
        require_recordings "${data_dirs[place]}"
        corpus=folders root_of=() out=$data/source$place
        if [[ -f "${data_dirs[place]}/wav.scp" ]]; then corpus=kaldi root_of=("${data_root[@]}"); fi
        ((${#data_dirs[@]} > 1)) || out=$data/all
        svt prepare --corpus "$corpus" --source "${data_dirs[place]}" --out "$out" --jobs "$nj" "${root_of[@]}" "${prepare[@]}"
        sources+=("$out")
    done
    if ((!${#data_dirs[@]})); then
        svt prepare --corpus synthetic --out "$data/synthetic" --jobs "$nj" "${prepare[@]}"
        sources=("$data/synthetic/train" "$data/synthetic/eval")
    fi
    if ((${#sources[@]} > 1)); then
        joined=$(printf ",'%s'" "${sources[@]}")
        svt prepare --corpus kaldi --source "[${joined:1}]" --out "$data/all" --jobs "$nj"
    fi
    svt validate "$data/all" --jobs "$nj"
    require_file "$data/all/wav.scp" "the recordings"
    require_speakers "$data/all" "$folds"
    stage_done 1 "${inputs[@]}"
fi

# ---- stage 2: cross-validate ----
inputs=("$data/all"/{wav.scp,utt2spk} "${experiment[@]}" "${train[@]}" "${crossval[@]}")
if stage_wanted 2 && ! stage_fresh 2 "${inputs[@]}"; then
    stage_begin 2 "cross-validate"
    [[ -n "$epochs" ]] || echo "$((folds * networks)) trainings of $minutes minutes each, and later $networks more on all speakers"
    svt crossval "${experiment[@]}" --exp-dir "$folded" --data.train "$data/all" "${train[@]}" "${crossval[@]}"
    require_file "$folded/crossval.json" "the figures of all folds"
    require_file "$scored/eval/trials" "the trials of all folds"
    for system in cosine as-norm plda; do require_file "$scored/scores/$system.json" "the error rates of all folds"; done
    stage_done 2 "${inputs[@]}"
fi

# ---- stage 3: train on all speakers, for as many epochs ----
[[ -n "$epochs" || ! -f "$folded/epochs.json" ]] || epochs=$(sed -n 's/.*"epochs": *\([0-9]*\).*/\1/p' "$folded/epochs.json")
inputs=("$data/all"/{wav.scp,utt2spk} "${experiment[@]}" "${train[@]}" "epochs=$epochs" "seed=$seed" "networks=$networks")
if stage_wanted 3 && ! stage_fresh 3 "${inputs[@]}"; then
    stage_begin 3 "train on all speakers"
    [[ -n "$epochs" ]] || die "$folded/epochs.json is missing, which says how long to train: run stage 2 first"
    for place in "${!runs[@]}"; do
        svt train "${experiment[@]}" --exp-dir "${runs[place]}" --data.train "$data/all" "${train[@]}" \
            trainer.epochs="$epochs" seed=$((seed + place))
        require_file "${runs[place]}/config.yaml" "the configuration of the run"
    done
    stage_done 3 "${inputs[@]}"
fi

# ---- stage 4: the released network, its threshold, a cohort and a back end ----
inputs=("$scored/scores/cosine" "$scored/eval/trials"
    "${average[@]}" "${embed[@]}" "${evaluate[@]}")
for run in "${runs[@]}"; do inputs+=("$run/config.yaml" "$run/logs/history.jsonl"); done
if stage_wanted 4 && ! stage_fresh 4 "${inputs[@]}"; then
    stage_begin 4 "average the last epochs, store the threshold of the folds, train a back end"
    if ((networks == 1)); then
        svt average --exp-dir "$exp_dir" --out "$model" num=9 "${average[@]}"
    else
        members=()
        for place in "${!runs[@]}"; do
            members+=("$exp_dir/members/$((place + 1))")
            svt average --exp-dir "${runs[place]}" --out "${members[place]}" num=9 "${average[@]}"
        done
        listed=$(printf ",'%s'" "${members[@]}")
        rm -rf -- "$model" # of another time
        svt ensemble --models "[${listed:1}]" --out "$model"
    fi
    require_file "$model/model.safetensors" "the released weights"
    require_file "$model/model.yaml" "the description of the released model"
    svt evaluate --scores "$scored/scores/cosine" --trials "$scored/eval/trials" --utt2spk "$scored/eval/utt2spk" \
        --name crossval --store-threshold "$model" "${evaluate[@]}"
    svt embed --model "$model" --data "$data/all" --out "$exp_dir/embeddings/cohort" --num-workers "$nj" "${embed[@]}"
    require_lines "$exp_dir/embeddings/cohort.scp" "$(wc -l <"$data/all/utt2spk")" "embeddings of the cohort"
    svt backend --kind plda --embeddings "$exp_dir/embeddings/cohort.scp" --utt2spk "$data/all/utt2spk" \
        --out "$exp_dir/plda.safetensors"
    require_file "$exp_dir/plda.safetensors" "the back end"
    stage_done 4 "${inputs[@]}"
fi

# ---- stage 5: report ----
results=("$scored/scores"/{cosine,as-norm,plda}.json)
inputs=("${results[@]}" "$model/model.yaml" "${report[@]}")
if stage_wanted 5 && ! stage_fresh 5 "${inputs[@]}"; then
    stage_begin 5 "report"
    listed=$(printf ",'%s'" "${results[@]}")
    svt report --results "[${listed:1}]" --out "$exp_dir/report" --exp-dir "$exp_dir" --model "$model" "${report[@]}"
    require_file "$exp_dir/report/index.html" "the report"
    stage_done 5 "${inputs[@]}"
fi
