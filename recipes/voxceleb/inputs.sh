# shellcheck shell=bash disable=SC2034,SC2154
# What run.sh is given and what it finds: corpora, trial lists, overrides; and the checks that are this recipe's own.

vgg=https://www.robots.ox.ac.uk/~vgg/data/voxceleb
official_lists=(veri_test2.txt list_test_all2.txt list_test_hard2.txt) # Vox1-O, E and H, cleaned
lists=()                                                              # trial lists to evaluate on
unpacked=()                                                           # corpora that come from --archives

# Distributes the overrides: train and lm for svt train, an array for each other command.
sort_overrides() {
    local override of_both=()
    experiment="" lm_experiment=voxceleb_lm fine_tuned=yes model=$own_model
    archives=() prepare=() convert=() shard=() validate=() average=() lm_average=() embed=() score=() evaluate=() report=()
    train=() lm=() of_features=()
    [[ "$own_no_lm" == no ]] || fine_tuned=""
    for override in "${overrides[@]}"; do
        case $override in
            archives.* | prepare.* | convert.* | shard.* | validate.* | average.* | embed.* | score.* | evaluate.* | \
                report.*)
                append "${override%%.*}" "${override#*.}"
                ;;
            model=*) model=${override#*=} ;;
            experiment=*) experiment=${override#*=} ;;
            lm.experiment=*) lm_experiment=${override#*=} ;;
            lm.average.*) lm_average+=("${override#lm.average.}") ;;
            lm.*) lm+=("${override#lm.}") ;;
            # What the fine-tuning shares, and what is of the machine. Its epochs, crops, batch and rates are its own;
            # network and features are those of the run that it begins with.
            seed=* | memory[.=]* | loss=* | loss.scale=* | augment[.=]* | validation[.=]* | \
                data.num_workers=* | data.min_seconds=* | trainer.device=* | trainer.devices=* | trainer.threads=* | \
                trainer.precision=* | trainer.deterministic=* | trainer.channels_last=* | trainer.sync_batch_norm=*)
                of_both+=("$override")
                ;;
            features.format=* | features.per_archive=* | features.max_bad=*)
                [[ "$own_features" != no ]] || die "$override is of 'svt features': give --features, too"
                of_features+=("${override#features.}")
                ;;
            features[.=]*) of_features+=("$override") train+=("$override") ;;
            *) train+=("$override") ;;
        esac
    done
    choose_size
    local augmentation=(--augment.noise "$data/musan" --augment.reverberation "$data/rirs")
    if [[ "$own_features" != no ]]; then # what changes waveforms is left out
        augmentation=(augment.dither=0)
        train=("data.speeds=[1.0]" "${train[@]}")
    fi
    of_both=("${augmentation[@]}" "trainer.devices=$devices" ${limit:+"validation.speakers=$held_out"} "${of_both[@]}")
    if [[ -z "$experiment" ]]; then # the paper's choice of an optimizer
        experiment=voxceleb
        [[ "$model" != *df_* ]] || experiment=voxceleb_adamw
    fi
    train=("experiment=$experiment" "model=$model" ${limit:+trainer.epochs=2} "${of_both[@]}" "${train[@]}")
    lm=("experiment=$lm_experiment" ${limit:+trainer.epochs=1} "${of_both[@]}" "${lm[@]}")
}

# Of a rehearsal (--limit-speakers N): its own folder below --data-dir, and as many held-out speakers and closest
# speakers of the cohort as N has.
choose_size() {
    data=$own_data_dir corpora_dir=$own_data_dir/corpora limit="" limited=() top_n=600 held_out=20
    [[ -n "${own_limit_speakers:-}" ]] || return 0
    limit=$(whole_number --limit-speakers "$own_limit_speakers" 4) || exit
    data+="/of-$limit-speakers" limited=("limit_speakers=$limit")
    ((limit >= top_n)) || top_n=$limit
    ((limit / 5 >= held_out)) || held_out=$((limit / 5 < 2 ? 2 : limit / 5))
}

# ---- what was downloaded ----

# Corpora that are not given are unpacked from the archives, if these are: their names, in unpacked.
find_corpora() {
    local corpus
    [[ -z "${own_archives:-}" || -d "$own_archives" ]] || die "--archives $own_archives: there is no such folder"
    if [[ -n "${own_archives:-}" ]]; then
        for corpus in vox1 vox2 musan rirs; do
            [[ -z "$(_own "$corpus")" ]] || continue
            unpacked+=("$corpus")
            set_own "$corpus" "$corpora_dir/$corpus"
        done
    fi
    [[ " ${unpacked[*]} " != *" vox1 "* ]] || own_trials=${own_trials:-$own_archives}
    require_corpora given
    find_lists
}

# require_corpora [given]: all folders are there, or all that are not to be unpacked.
require_corpora() {
    require_corpus vox1 "VoxCeleb1: vox1_dev_wav_partaa to _partad, joined, and vox1_test_wav.zip" "$vgg/vox1.html" "$@"
    require_corpus vox2 "VoxCeleb2: vox2_dev_aac_partaa to _partah, joined" "$vgg/vox2.html" "$@"
    require_corpus musan "MUSAN: musan.tar.gz" https://www.openslr.org/17/ "$@"
    require_corpus rirs "RIRS_NOISES: rirs_noises.zip" https://www.openslr.org/28/ "$@"
}

require_corpus() { # require_corpus OPTION WHAT PAGE [given]
    local remedy="download $2 from $3, unpack it and name the folder: --$1 DIR (or that of the archives: --archives DIR)"
    local folder
    folder=$(_own "$1")
    [[ -n "$folder" ]] || die "--$1 is missing: $remedy"
    [[ "${4:-}" != given || " ${unpacked[*]} " != *" $1 "* ]] || return 0
    [[ -d "$folder" ]] || die "--$1 $folder: there is no such folder: $remedy"
}

# list_folders OPTION...: the folders of these corpora down to the speakers, with the time that each last got or lost an
# entry: what is unpacked later is to be listed, too.
list_folders() {
    local option form=(-f '%N %Fm') # BSD
    ! stat -c %Y / >/dev/null 2>&1 || form=(-c '%n %.9Y')
    for option in "$@"; do
        (CDPATH="" cd -- "$(_own "$option")" && find -L . -maxdepth 3 -type d -exec stat -L "${form[@]}" {} +) |
            LC_ALL=C sort
    done | _sha256
}

find_lists() {
    local folder=${own_trials:-$own_vox1} name file
    [[ -d "$folder" ]] || die "--trials $folder: there is no such folder; expected that of the trial lists"
    if [[ "$own_other_trials" != no ]]; then
        [[ -n "${own_trials:-}" ]] || die "--other-trials needs --trials DIR, the folder of the lists"
        for file in "$folder"/*.txt "$folder"/*.txt.gz; do [[ ! -f "$file" ]] || lists+=("$file"); done
        ((${#lists[@]})) || die "--trials $folder: holds no .txt or .txt.gz; expected trial lists"
        return
    fi
    for name in "${official_lists[@]}"; do
        file="$folder/$name"
        [[ -f "$file" ]] || file+=.gz
        [[ -f "$file" ]] || die "$folder/$name is missing: download the trial lists ${official_lists[*]} from" \
            "$vgg/vox1.html into a folder and name it: --trials DIR (to evaluate on some of them: --other-trials)"
        lists+=("$file")
    done
}

# list_of FILE...: as a value of a key that takes a list.
list_of() {
    local file escaped listed=""
    for file in "$@"; do
        # shellcheck disable=SC2001 # what quotes mean in ${file//...} differs from bash to bash
        escaped=$(sed "s/'/\\\\'/g" <<<"$file")
        listed+=",'$escaped'"
    done
    echo "[${listed:1}]"
}

# ---- what the stages made ----

# evaluations: names of the trial lists beside VoxCeleb1's data directory, after trials_; O, E and H first.
find_evaluations() {
    local name file
    evaluations=()
    for name in O E H; do
        name+=${limit:+_of_${limit}_speakers}
        [[ ! -f "$data/vox1/trials_$name" ]] || evaluations+=("$name")
    done
    for file in "$data"/vox1/trials_*; do
        name=${file##*/trials_}
        [[ ! -f "$file" || " ${evaluations[*]} " == *" $name "* ]] || evaluations+=("$name")
    done
}

# Data directories to train on and to evaluate, and the table that locates their audio.
find_speech() {
    train_set="$data/$own_source/vox2" eval_set="$data/vox1" table=wav.scp
    if [[ "$own_source" == shards ]]; then
        eval_set="$data/shards/vox1" table=shards.scp
    elif [[ -f "$data/vox2/utt2dur" ]]; then
        train_set="$data/vox2" # no m4a among it: nothing to convert
    fi
}

# compute_features: of VoxCeleb1 and 2, from the audio that stage 2 left.
compute_features() {
    local corpus audio part
    for corpus in vox1 vox2; do
        audio=$eval_set
        [[ "$corpus" == vox1 ]] || audio=$train_set
        part=("$audio/$table" "$audio/utt2spk" "${of_features[@]}")
        if [[ ! -f "$data/features/$corpus/feats.scp" ]] || ! part_fresh "2.features-$corpus" "${part[@]}"; then
            echo "=== stage 2: features of $corpus ($(date +%H:%M:%S))"
            svt features --data "$audio" --out "$data/features/$corpus" --jobs "$nj" "${of_features[@]}"
            part_done "2.features-$corpus" "${part[@]}"
        fi
    done
}

# require_all NEW OLD: the utterances of OLD are in NEW, but for those that NEW lists as bad.
require_all() {
    local bad=0
    if [[ "$1" == "$2" ]]; then
        require_lines "$1/$table" "$(wc -l <"$1/utt2spk")" "utterances with audio"
        return
    fi
    [[ ! -f "$1/bad_files.tsv" ]] || bad=$(($(wc -l <"$1/bad_files.tsv") - 1))
    require_lines "$1/utt2spk" $(($(wc -l <"$2/utt2spk") - bad)) "utterances of $2"
    require_lines "$1/$table" "$(wc -l <"$1/utt2spk")" "utterances with audio"
}

# require_embeddings OUT UTT2SPK: of all utterances but those that OUT.yaml lists as failures.
require_embeddings() {
    local failed
    failed=$(awk '/^failures:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [^ ]/ { n++ } END { print n + 0 }' "$1.yaml")
    require_lines "$1.scp" $(($(wc -l <"$2") - failed)) "embeddings of ${1##*/}"
}

require_epochs() { # require_epochs EXP_DIR: all of its epochs are in its history
    local found wanted
    require_file "$1/config.yaml" "the configuration of the run"
    require_file "$1/logs/history.jsonl" "the history of the run"
    wanted=$(sed -n 's/^  epochs: //p' "$1/config.yaml")
    found=$(grep -c '"kind": "epoch"' "$1/logs/history.jsonl") || true
    ((found == wanted)) || die "$1/logs/history.jsonl has $found epochs of $wanted: run the recipe again to resume"
}

require_model() {
    require_file "$1/model.safetensors" "the released weights"
    require_file "$1/model.yaml" "the description of the released model"
}

# A fine-tuning resumes where it stopped; what began with other weights must not pass for one of these.
claim_fine_tuning() {
    local begun="$exp_dir/lm/begun_with" now
    now=$(_sha256 <"$exp_dir/model/model.safetensors")
    if [[ -f "$begun" && "$(<"$begun")" != "$now" ]]; then
        die "$exp_dir/lm was fine-tuned from other weights than $exp_dir/model has now: move it away or remove it"
    fi
    mkdir -p "$exp_dir/lm"
    echo "$now" >"$begun"
}

# score_and_evaluate SYSTEM/scores/EVALUATION/cosine, or as-norm in its place
score_and_evaluate() {
    local scores=$1 name evaluation system of_scores=() of_evaluation=()
    evaluation=${scores%/*} evaluation=${evaluation##*/}
    system=${scores%/scores/*}
    local trials="$data/vox1/trials_$evaluation"
    name="Vox1-$evaluation"
    [[ "$system" == "$exp_dir" ]] || name+=", fine-tuned"
    of_scores=(--normalisation none)
    if [[ "$scores" == */as-norm ]]; then
        of_scores=(--normalisation as-norm --cohort "$system/embeddings/vox2.scp" --cohort-utt2spk "$train_set/utt2spk"
            --subtract-mean true "top_n=$top_n" "${score[@]}")
    elif [[ "$evaluation" == "${evaluations[0]}" ]]; then
        of_evaluation=(--store-threshold "$system/model")
    fi
    svt score --trials "$trials" --embeddings "$system/embeddings/vox1.scp" --out "$scores" \
        --utt2spk "$data/vox1/utt2spk" "${of_scores[@]}"
    require_lines "$scores" "$(grep -c '[^[:space:]]' "$trials")" "scores of $evaluation"
    svt evaluate --scores "$scores" --trials "$trials" --utt2spk "$data/vox1/utt2spk" --name "$name" \
        "${of_evaluation[@]}" "${evaluate[@]}"
}
