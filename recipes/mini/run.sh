#!/usr/bin/env bash
# From speech to an equal error rate on two CPU cores. See README.md beside this file.
set -eo pipefail

recipe=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$recipe/../.." && pwd)
stages="$recipe/stages.sh" # where `svt recipe` puts it
[[ -f "$stages" ]] || stages="$root/scripts/stages.sh"
# shellcheck source=scripts/stages.sh
. "$stages"
# shellcheck source=recipes/mini/inputs.sh
. "$recipe/inputs.sh"

stop_stage=6
exp_dir="$recipe/exp/synthetic"
own_options=("--features: compute the filter bank once, and train and embed from it") own_features=no
help_message="Trains a small speaker-verification network and prints its equal error rate.

Without --data, a corpus of synthetic speakers is made: nothing is downloaded. With --data DIR, DIR/train and DIR/eval
are Kaldi data directories; several --data are joined for training and evaluated one by one.

stages: 1 prepare and validate (--features: and compute them), 2 train, 3 average, 4 embed, 5 score and evaluate, 6 report

Overrides go to 'svt train', except those that begin with prepare. average. embed. score. evaluate. or report.:
they go to that command without the prefix (score.top_n=50). With --features, those of the filter bank (features.num_bins)
go to 'svt features' too, and features.format, per_archive, max_bad to it alone. data.root=DIR is what relative paths are taken from."
parse_options "$@"

# ---- which override is for which command ----
prepare=() average=() embed=() score=() evaluate=() report=() train=() of_features=()
data_root=() experiment=(experiment=mini)
for override in "${overrides[@]}"; do
    case $override in
        prepare.* | average.* | embed.* | score.* | evaluate.* | report.*)
            append "${override%%.*}" "${override#*.}"
            ;;
        data.root=*) data_root=(--root "${override#*=}") ;; # prepared directories hold absolute paths
        experiment=*) experiment=("$override") ;;
        features.format=* | features.per_archive=* | features.max_bad=*)
            [[ "$own_features" != no ]] || die "$override is of 'svt features': give --features, too"
            of_features+=("${override#features.}")
            ;;
        features[.=]*) of_features+=("$override") train+=("$override") ;;
        *) train+=("$override") ;;
    esac
done

use_environment demo

data="$exp_dir/data"
speech=$data table=wav.scp
model="$exp_dir/model"
if [[ "$own_features" != no ]]; then # what changes waveforms is left out
    speech="$exp_dir/features" table=feats.scp
    train=(data.source=features "data.speeds=[1.0]" augment.dither=0 "${train[@]}")
fi

# Names of the evaluation sets: eval, or eval_<name> of each --data.
evaluations=(eval)
if ((${#data_dirs[@]})); then
    evaluations=()
    for directory in "${data_dirs[@]}"; do
        require_split "$directory"
        name=$(basename -- "$(cd -- "$directory" && pwd)")
        name="eval_${name//[^A-Za-z0-9_.-]/_}"
        [[ " ${evaluations[*]} " != *" $name "* ]] || die "--data $directory: another is called $name too; rename the folder"
        evaluations+=("$name")
    done
fi

# ---- stage 1: prepare and validate ----
inputs=(--seeded "${prepare[@]}" "${data_root[@]}")
for directory in "${data_dirs[@]}"; do inputs+=("$directory/train" "$directory/eval"); done
if stage_wanted 1 && ! stage_fresh 1 "${inputs[@]}"; then
    stage_begin 1 "prepare and validate data"
    if ((${#data_dirs[@]})); then
        sources=$(printf ",'%s/train'" "${data_dirs[@]}")
        svt prepare --corpus kaldi --source "[${sources:1}]" --out "$data/train" --jobs "$nj" "${data_root[@]}" "${prepare[@]}"
        for index in "${!data_dirs[@]}"; do
            svt prepare --corpus kaldi --source "${data_dirs[index]}/eval" --out "$data/${evaluations[index]}" \
                --draw-trials true --jobs "$nj" "${data_root[@]}" "${prepare[@]}"
        done
    else
        svt prepare --corpus synthetic --out "$data" --eval-speakers 12 --jobs "$nj" "${prepare[@]}"
    fi
    svt validate "$data/train" --jobs "$nj"
    (($(wc -l <"$data/train/spk2utt") > 1)) ||
        die "$data/train has one speaker, and stage 5 needs two or more as a cohort: hold out fewer for the evaluation"
    require_file "$data/train/wav.scp" "the recordings to train on"
    for evaluation in "${evaluations[@]}"; do
        svt validate "$data/$evaluation" --against "$data/train" --jobs "$nj"
        require_file "$data/$evaluation/trials" "the trial list of $evaluation"
    done
    stage_done 1 "${inputs[@]}"
fi

# ---- with --features: compute them, once for all epochs ----
if [[ "$own_features" != no ]] && stage_wanted 1; then
    for part in "${evaluations[@]}" train; do
        inputs=("$data/$part"/{wav.scp,utt2spk} "${of_features[@]}")
        if [[ ! -f "$speech/$part/feats.scp" ]] || ! part_fresh "1.features-$part" "${inputs[@]}"; then
            echo "=== stage 1: features of $part ($(date +%H:%M:%S))"
            svt features --data "$data/$part" --out "$speech/$part" --jobs "$nj" --max-bad 0 "${of_features[@]}"
            require_lines "$speech/$part/feats.scp" "$(wc -l <"$speech/$part/utt2spk")" "features of $part"
            part_done "1.features-$part" "${inputs[@]}"
        fi
    done
fi

# ---- stage 2: train ----
inputs=("$speech/train/$table" "$speech/train/utt2spk" "${experiment[@]}" "${train[@]}")
if stage_wanted 2 && ! stage_fresh 2 "${inputs[@]}"; then
    stage_begin 2 "train"
    svt train "${experiment[@]}" --exp-dir "$exp_dir" --data.train "$speech/train" "${train[@]}"
    require_file "$exp_dir/config.yaml" "the configuration of the run"
    stage_done 2 "${inputs[@]}"
fi

# ---- stage 3: average ----
inputs=("$exp_dir/config.yaml" "$exp_dir/logs/history.jsonl" "${average[@]}")
if stage_wanted 3 && ! stage_fresh 3 "${inputs[@]}"; then
    stage_begin 3 "average the last epochs into a released model"
    svt average --exp-dir "$exp_dir" --out "$model" num=5 "${average[@]}"
    require_file "$model/model.safetensors" "the released weights"
    require_file "$model/model.yaml" "the description of the released model"
    stage_done 3 "${inputs[@]}"
fi

# ---- stage 4: embed the evaluation sets and the cohort, which is the training set ----
inputs=("$model/model.safetensors" "$speech/train/$table" "${embed[@]}")
for evaluation in "${evaluations[@]}"; do inputs+=("$speech/$evaluation/$table"); done
if stage_wanted 4 && ! stage_fresh 4 "${inputs[@]}"; then
    stage_begin 4 "embed evaluation and cohort"
    for part in "${evaluations[@]}" train; do
        svt embed --model "$model" --data "$speech/$part" --out "$exp_dir/embeddings/$part" --num-workers "$nj" "${embed[@]}"
        require_lines "$exp_dir/embeddings/$part.scp" "$(wc -l <"$speech/$part/utt2spk")" "embeddings of $part"
    done
    stage_done 4 "${inputs[@]}"
fi

# ---- stage 5: score and evaluate ----
inputs=("${score[@]}" "${evaluate[@]}" "$exp_dir/embeddings/train.scp" "$model/model.safetensors")
for evaluation in "${evaluations[@]}"; do inputs+=("$exp_dir/embeddings/$evaluation.scp" "$data/$evaluation/trials"); done
if stage_wanted 5 && ! stage_fresh 5 "${inputs[@]}"; then
    stage_begin 5 "score and evaluate"
    top_n=(top_n=40)
    (($(wc -l <"$data/train/spk2utt") >= 40)) || top_n=() # svt score fits it to a cohort of fewer speakers, and says so
    for evaluation in "${evaluations[@]}"; do
        for normalisation in none as-norm; do
            scores="$exp_dir/scores/$evaluation/${normalisation/none/cosine}"
            options=(--normalisation "$normalisation")
            [[ $normalisation == none ]] || options+=(--subtract-mean true "${top_n[@]}" "${score[@]}")
            svt score --trials "$data/$evaluation/trials" --embeddings "$exp_dir/embeddings/$evaluation.scp" --out "$scores" \
                --cohort "$exp_dir/embeddings/train.scp" --cohort-utt2spk "$data/train/utt2spk" \
                --utt2spk "$data/$evaluation/utt2spk" "${options[@]}"
            require_lines "$scores" "$(grep -c '[^[:space:]]' "$data/$evaluation/trials")" "scores of $evaluation"
            options=()
            [[ $normalisation != none || $evaluation != "${evaluations[0]}" ]] || options=(--store-threshold "$model")
            svt evaluate --scores "$scores" --trials "$data/$evaluation/trials" --utt2spk "$data/$evaluation/utt2spk" \
                --name "$evaluation" "${options[@]}" "${evaluate[@]}"
            require_file "$scores.json" "the error rates of $evaluation"
        done
    done
    stage_done 5 "${inputs[@]}"
fi

# ---- stage 6: report ----
results=()
for evaluation in "${evaluations[@]}"; do
    results+=("$exp_dir/scores/$evaluation/cosine.json" "$exp_dir/scores/$evaluation/as-norm.json")
done
inputs=("${results[@]}" "${report[@]}")
if stage_wanted 6 && ! stage_fresh 6 "${inputs[@]}"; then
    stage_begin 6 "report"
    listed=$(printf ",'%s'" "${results[@]}")
    svt report --results "[${listed:1}]" --out "$exp_dir/report" --exp-dir "$exp_dir" --model "$model" "${report[@]}"
    require_file "$exp_dir/report/index.html" "the report"
    stage_done 6 "${inputs[@]}"
fi
