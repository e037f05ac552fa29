"""Data directories of folds: of files, shards and features; who trains every time; the list of all folds."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_material import RATE, voice, write_data

from svtoolkit.audio.files import read_audio
from svtoolkit.cli import main
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.fold_dirs import FoldedData, read_folded, write_pooled
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.tables import read_table
from svtoolkit.data.trials import read_trials
from svtoolkit.data.utterance_columns import read_utterance_columns

FOLDS = {"s00": 0, "s01": 1, "s02": 1, "s03": 2, "s04": 2}


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> Path:
    """5 speakers of 2 utterances."""
    return write_data(tmp_path_factory.mktemp("speech"), range(5), 2)


def folded(folder: Path) -> FoldedData:
    return FoldedData(folder, read_folded(folder, None, None), FOLDS)


def test_a_fold_of_files_and_who_trains_every_time(speech, tmp_path):
    data = folded(speech)
    for fold, others in ((1, ["s00", "s03", "s04"]), (2, ["s00", "s01", "s02"])):
        data.write(tmp_path / str(fold), fold, seed=0, targets_per_speaker=45)
        train, held_out = (KaldiDir.read(tmp_path / str(fold) / part) for part in ("train", "eval"))
        assert train.speakers == others
        assert held_out.speakers == sorted(speaker for speaker, its in FOLDS.items() if its == fold)
        assert all(path.is_file() for path in map(train.audio_path, train.wav_scp))
        trials = read_trials(tmp_path / str(fold) / "eval" / "trials")
        assert (int(trials.target.sum()), len(trials)) == (2, 4)
        assert trials.utterances <= held_out.utt2spk.keys()


def test_a_fold_of_shards_is_read_where_it_is(speech, tmp_path):
    shards = tmp_path / "shards"
    assert main(["shard", f"data={speech}", f"out={shards}", "format=original"]) == 0
    data = folded(shards)
    data.write(tmp_path / "fold", 1, seed=0, targets_per_speaker=45)
    held_out = KaldiDir.read(tmp_path / "fold" / "eval")
    samples = read_audio(held_out.audio_path("s01-1"), sample_rate=RATE)
    assert abs(samples - voice(1, 1, 0.95)).max() < 1e-4


def test_a_fold_of_features_says_what_they_are(speech, tmp_path):
    stored = tmp_path / "features"
    words = [f"data={speech}", f"out={stored}", f"features.sample_rate={RATE}", "features.num_bins=24"]
    assert main(["features", *words]) == 0
    folded(stored).write(tmp_path / "fold", 2, seed=0, targets_per_speaker=45)
    for part in ("train", "eval"):
        assert StoredFeatures.read(tmp_path / "fold" / part).settings["num_bins"] == 24
        assert read_folded(tmp_path / "fold" / part, None, None).audio_table == "feats.scp"


def test_all_folds_as_one_list_with_what_is_known_of_their_utterances(speech, tmp_path):
    """Under two seeds; the speakers of fold 0 are in no trial."""
    data = folded(speech)
    lists = []
    for fold in (1, 2):
        data.write(tmp_path / str(fold), fold, seed=0, targets_per_speaker=45)
        lists.append(read_trials(tmp_path / str(fold) / "eval" / "trials"))
    pooled = write_pooled(tmp_path / "eval", data, [(f"seed{seed}/", each) for seed in (1, 2) for each in lists])
    again = read_trials(tmp_path / "eval" / "trials")
    assert (list(again.enrol), list(again.test)) == (list(pooled.enrol), list(pooled.test))
    assert len(again) == 2 * sum(map(len, lists))
    assert again.enrol[0] == f"seed1/{lists[0].enrol[0]}"
    utt2spk = {name: speaker for name, (_, speaker) in read_table(tmp_path / "eval" / "utt2spk", []).items()}
    assert utt2spk.keys() == again.utterances
    assert set(utt2spk.values()) == {"s01", "s02", "s03", "s04"}
    durations = read_utterance_columns(tmp_path / "eval", utt2spk).durations
    assert durations["seed2/s01-1"] == data.kaldi_dir.utt2dur["s01-1"] == pytest.approx(0.95)


def test_the_digest_is_of_speakers_audio_and_folds(speech):
    data = folded(speech)
    assert data.digest() == folded(speech).digest()
    assert data.digest() != data._replace(fold_of=FOLDS | {"s00": 1}).digest()
    assert data.digest() != data._replace(kaldi_dir=data.kaldi_dir.subset(sorted(data.kaldi_dir.utt2spk)[1:])).digest()


def test_recordings_and_other_tables_are_columns(tmp_path):
    (tmp_path / "segments").write_text("a-1 rec1 0.0 1.5\na-2 rec1 2.0 -1\nb-1 rec2 0.5 1.0\n")
    (tmp_path / "utt2channel").write_text("a-1 phone\na-2 room\nb-1 room\nother room\n")
    found = read_utterance_columns(tmp_path, {"a-1": "a", "a-2": "a", "b-1": "b"})
    assert found.durations == {"a-1": 1.5, "b-1": 0.5}
    assert found.values == {
        "utt2channel": {"a-1": "phone", "a-2": "room", "b-1": "room"},
        "recording": {"a-1": "rec1", "a-2": "rec1", "b-1": "rec2"},
    }
