#!/usr/bin/env bash
# From VoxCeleb2 to equal error rates on VoxCeleb1. See README.md beside this file.
set -eo pipefail

recipe=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$recipe/../.." && pwd)
stages="$recipe/stages.sh" # where `svt recipe` puts it
[[ -f "$stages" ]] || stages="$root/scripts/stages.sh"
# shellcheck source=scripts/stages.sh
. "$stages"

stop_stage=8 takes_data=""
own_options=(
    "--vox1 DIR: VoxCeleb1 dev and test, unpacked: .../id1*/VIDEO/*.wav"
    "--vox2 DIR: VoxCeleb2 dev, unpacked: .../id0*/VIDEO/*.m4a, or .wav or .flac"
    "--musan DIR: MUSAN, unpacked"
    "--rirs DIR: RIRS_NOISES, unpacked"
    "--trials DIR: trial lists of VoxCeleb1, where they are not in --vox1"
    "--other-trials: take every .txt and .txt.gz of --trials, official or not"
    "--archives DIR: archives as downloaded; what --vox1 --vox2 --musan --rirs do not give is checked and unpacked"
    "--limit-speakers N: a rehearsal of all stages on N speakers of VoxCeleb2 and N of VoxCeleb1, 4 or more"
    "--data-dir DIR: where lists and converted speech go, for all experiments"
    "--source KIND: files or shards: what the speech is written as"
    "--features: compute the filter bank once, and train and embed from it, without noise, reverberation and speeds"
    "--model NAME: network to train, one of 'svt models'"
    "--devices N: GPUs (with trainer.device=cpu: processes) to train on"
    "--no-lm: leave out the large-margin fine-tuning"
)
own_data_dir="$recipe/data" own_model=resnet34 own_source=files own_features=no own_devices=1 own_no_lm=no
own_other_trials=no
help_message="Trains on VoxCeleb2 dev and evaluates on Vox1-O, E and H. Results go to $recipe/exp/MODEL.

stages: 0 unpack the archives, 1 prepare, 2 convert and validate (--features: and compute them), 3 train, 4 average,
5 fine-tune with a large margin and average, 6 embed, 7 score and evaluate, 8 report

Overrides go to 'svt train', those of head, augmentation, held-out speakers and machine to the fine-tuning as well; with
the prefix lm. to the fine-tuning alone; features.format, per_archive and max_bad to 'svt features', which takes those
of the filter bank (features.num_bins), too; with the prefix archives. prepare. convert. shard. validate. average.
lm.average. embed. score. evaluate. or report. to that command. experiment=NAME takes the place of voxceleb
(voxceleb_adamw for DF networks), lm.experiment=NAME that of voxceleb_lm."
parse_options "$@"
devices=$(whole_number --devices "$own_devices" 1)
[[ "$own_source" == files || "$own_source" == shards ]] || die "--source takes files or shards, found '$own_source'"
# shellcheck source=recipes/voxceleb/inputs.sh
. "$recipe/inputs.sh"

sort_overrides
exp_dir=${exp_dir:-$recipe/exp/$model${limit:+-of-$limit-speakers}}
if stage_wanted 0 || stage_wanted 1; then find_corpora; fi

use_environment

# A mistake in the overrides shows before hours of conversion.
if stage_wanted 3; then svt train "${train[@]}" --cfg job >/dev/null; fi
if stage_wanted 5 && [[ -n "$fine_tuned" ]]; then
    svt train "${lm[@]}" --cfg job >/dev/null ||
        die "the fine-tuning cannot be configured: lm.experiment=NAME chooses another experiment, --no-lm leaves it out"
fi

# ---- stage 0: check and unpack what was downloaded ----
marks_dir=$corpora_dir
inputs=("${own_archives:-}" "${unpacked[@]}" "${limited[@]}" "${archives[@]}")
if [[ -n "${own_archives:-}" ]] && stage_wanted 0 && ! stage_fresh 0 "${inputs[@]}"; then
    stage_begin 0 "check and unpack the archives"
    if ((${#unpacked[@]})); then
        svt archives "$own_archives" --unpack "$corpora_dir" --corpora "$(list_of "${unpacked[@]}")" --jobs "$nj" \
            "${limited[@]}" "${archives[@]}"
    else
        svt archives "$own_archives" --jobs "$nj"
    fi
    stage_done 0 "${inputs[@]}"
fi
if stage_wanted 1; then require_corpora; fi

# ---- stage 1: prepare; all experiments share what stages 1 and 2 make ----
marks_dir=$data
inputs=("${own_vox1:-}" "${own_vox2:-}" "${own_musan:-}" "${own_rirs:-}" "${lists[@]}" "${limited[@]}"
    "${prepare[@]}")
if stage_wanted 1; then inputs+=("folders: $(list_folders vox1 vox2 musan rirs)"); fi
if stage_wanted 1 && ! stage_fresh 1 "${inputs[@]}"; then
    stage_begin 1 "prepare"
    svt prepare --corpus musan --source "$own_musan" --out "$data/musan" --jobs "$nj" "${prepare[@]}"
    svt prepare --corpus rirs_noises --source "$own_rirs" --out "$data/rirs" --jobs "$nj" "${prepare[@]}"
    rm -f "$data"/vox1/trials_*
    other_trials=false
    [[ "$own_other_trials" == no ]] || other_trials=true
    svt prepare --corpus voxceleb1 --source "$own_vox1" --out "$data/vox1" --jobs "$nj" \
        --trials "$(list_of "${lists[@]}")" --other-trials "$other_trials" "${limited[@]}" "${prepare[@]}"
    svt prepare --corpus voxceleb2 --source "$own_vox2" --part dev --out "$data/vox2" --jobs "$nj" \
        "${limited[@]}" "${prepare[@]}"
    for corpus in musan rirs vox1 vox2; do
        require_file "$data/$corpus/utt2spk" "the list of $corpus"
        require_lines "$data/$corpus/wav.scp" "$(wc -l <"$data/$corpus/utt2spk")" "files of $corpus"
    done
    find_evaluations
    ((${#evaluations[@]} == ${#lists[@]})) || die "$data/vox1 has ${#evaluations[@]} trial lists of ${#lists[@]}"
    stage_done 1 "${inputs[@]}"
fi
find_evaluations
find_speech

# ---- stage 2: convert and validate ----
marks_dir="$data/$own_source"
inputs=("$data"/vox{1,2}/{wav.scp,utt2spk} "${convert[@]}" "${shard[@]}" "${validate[@]}")
if stage_wanted 2 && ! stage_fresh 2 "${inputs[@]}"; then
    stage_begin 2 "convert to $own_source and validate"
    [[ -f "$data/vox2/utt2dur" ]] || require_module av voxceleb
    if [[ "$own_source" == shards ]]; then
        for corpus in vox1 vox2; do
            svt shard --data "$data/$corpus" --out "$data/shards/$corpus" --jobs "$nj" "${shard[@]}"
        done
    elif [[ "$train_set" != "$data/vox2" ]]; then
        svt convert --source "$data/vox2" --out "$train_set" --jobs "$nj" "${convert[@]}"
    fi
    require_all "$train_set" "$data/vox2"
    require_all "$eval_set" "$data/vox1"
    part=("$train_set"/{"$table",utt2spk,utt2dur} "${validate[@]}")
    if ! part_fresh 2.validated "${part[@]}"; then
        svt validate "$train_set" --jobs "$nj" max_bad=0.001 "${validate[@]}"
        part_done 2.validated "${part[@]}"
    fi
    svt validate "$eval_set" --against "$train_set" --jobs "$nj" "${validate[@]}"
    stage_done 2 "${inputs[@]}"
fi
if [[ "$own_features" != no ]]; then
    marks_dir="$data/features"
    if stage_wanted 2; then compute_features; fi
    train_set="$data/features/vox2" eval_set="$data/features/vox1" table=feats.scp
    own_source=features
fi
marks_dir=""

# ---- stage 3: train ----
on_speech=(--data.train "$train_set" "data.source=$own_source")
inputs=("$train_set/$table" "$train_set/utt2spk" "$data"/{musan,rirs}/wav.scp "${train[@]}")
if stage_wanted 3 && ! stage_fresh 3 "${inputs[@]}"; then
    stage_begin 3 "train"
    svt train --exp-dir "$exp_dir" "${on_speech[@]}" "${train[@]}"
    require_epochs "$exp_dir"
    stage_done 3 "${inputs[@]}"
fi

# ---- stage 4: average ----
inputs=("$exp_dir/config.yaml" "$exp_dir/logs/history.jsonl" "${average[@]}")
if stage_wanted 4 && ! stage_fresh 4 "${inputs[@]}"; then
    stage_begin 4 "average the last epochs into a released model"
    svt average --exp-dir "$exp_dir" --out "$exp_dir/model" num=10 "${average[@]}"
    require_model "$exp_dir/model"
    stage_done 4 "${inputs[@]}"
fi

# ---- stage 5: fine-tune with long crops and a large margin ----
inputs=("$exp_dir/model/model.safetensors" "$train_set/$table" "${lm[@]}" "${lm_average[@]}")
if [[ -n "$fine_tuned" ]] && stage_wanted 5 && ! stage_fresh 5 "${inputs[@]}"; then
    stage_begin 5 "fine-tune with a large margin"
    require_model "$exp_dir/model"
    claim_fine_tuning
    svt train --exp-dir "$exp_dir/lm" --init-from "$exp_dir" "${on_speech[@]}" "${lm[@]}"
    require_epochs "$exp_dir/lm"
    svt average --exp-dir "$exp_dir/lm" --out "$exp_dir/lm/model" num=3 "${lm_average[@]}"
    require_model "$exp_dir/lm/model"
    stage_done 5 "${inputs[@]}"
fi

# ---- stage 6: embed VoxCeleb1 and the cohort, which is the training set ----
systems=("$exp_dir" ${fine_tuned:+"$exp_dir/lm"})
models=()
for system in "${systems[@]}"; do models+=("$system/model/model.safetensors"); done
inputs=("${models[@]}" "$train_set/$table" "$eval_set/$table" "${embed[@]}")
if stage_wanted 6 && ! stage_fresh 6 "${inputs[@]}"; then
    stage_begin 6 "embed evaluation and cohort"
    for system in "${systems[@]}"; do
        for set in "$eval_set" "$train_set"; do
            out="$system/embeddings/${set##*/}"
            mark=6.${system##*/}-${set##*/} # a million utterances: a stop is not to cost all of them
            part=("$system/model/model.safetensors" "$set/$table" "${embed[@]}")
            if [[ ! -f "$out.scp" ]] || ! part_fresh "$mark" "${part[@]}"; then
                may_fail=() # what became bad since it was validated costs its own embedding in the cohort alone
                [[ "$set" != "$train_set" ]] || may_fail=(max_bad=0.001)
                svt embed --model "$system/model" --data "$set" --out "$out" --num-workers "$nj" "${may_fail[@]}" \
                    "${embed[@]}"
                part_done "$mark" "${part[@]}"
            fi
            require_embeddings "$out" "$set/utt2spk"
        done
    done
    stage_done 6 "${inputs[@]}"
fi

# ---- stage 7: score and evaluate ----
inputs=("${models[@]}")
for system in "${systems[@]}"; do inputs+=("$system/embeddings/vox1.scp" "$system/embeddings/vox2.scp"); done
inputs+=("${score[@]}" "${evaluate[@]}")
results=()
for evaluation in "${evaluations[@]}"; do
    inputs+=("$data/vox1/trials_$evaluation")
    for system in "${systems[@]}"; do results+=("$system/scores/$evaluation/"{cosine,as-norm}.json); done
done
if stage_wanted 7 && ! stage_fresh 7 "${inputs[@]}"; then
    stage_begin 7 "score and evaluate"
    ((${#evaluations[@]})) || die "$data/vox1 holds no trial list: run stage 1 first"
    for result in "${results[@]}"; do score_and_evaluate "${result%.json}"; done
    stage_done 7 "${inputs[@]}"
fi

# ---- stage 8: report ----
inputs=("${results[@]}" "${report[@]}")
if stage_wanted 8 && ! stage_fresh 8 "${inputs[@]}"; then
    stage_begin 8 "report"
    for system in "${systems[@]}"; do
        # The first report compares the systems; that of the fine-tuning shows its own curves.
        listed=()
        for result in "${results[@]}"; do [[ "$result" != "$system"/* ]] || listed+=("$result"); done
        svt report --results "$(list_of "${listed[@]}")" --out "$system/report" --exp-dir "$system" --model "$system/model" \
            "${report[@]}"
        require_file "$system/report/index.html" "the report"
    done
    stage_done 8 "${inputs[@]}"
fi
