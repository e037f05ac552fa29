"""Crops of stored features: those that on-line training would compute at the same place, the same in any run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml
from feature_material import BINS, STORED, write_features_of
from speech_material import synthesise_voice
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config

from svtoolkit.audio.files import read_audio
from svtoolkit.crops.crop import collate_crops
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.data import feature_archive
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.training.dry_run import dry_run
from svtoolkit.training.experiment import train

FRAMES, SHIFT, RATE = 40, 160, 16000
SAMPLES = (FRAMES - 1) * SHIFT + 400
FRONT_END = build_front_end(num_bins=BINS)


@pytest.fixture(scope="module")
def features(speech, tmp_path_factory) -> dict[str, Path]:
    """Format -> feature directory of the corpus."""
    folder = tmp_path_factory.mktemp("features")
    for form in ("float32", "float16", "compressed"):
        write_features_of(speech, folder / form, format=form, per_archive=10)
    return {form: folder / form for form in ("float32", "float16", "compressed")}


def crops_of(data: Path, exp_dir: Path, **changes):
    return TrainingData(tiny_config(data, exp_dir, **changes)).crops(FRONT_END)


@pytest.mark.parametrize("form", ["float32", "float16", "compressed"])
def test_crops_are_the_features_of_the_same_place(features, speech, tmp_path, form):
    """float32 to within 1e-5, float16 within its rounding, compressed within half a step of its scale."""
    stored = crops_of(features[form], tmp_path, **STORED)
    raw = build_front_end(num_bins=BINS, remove_mean=False)
    audio = KaldiDir.read(speech)
    for entry in range(0, len(stored), 4):
        for epoch in (0, 3):
            crop = stored[epoch, entry]
            assert crop.samples.shape == (FRAMES, BINS)
            utterance = stored.training_set.utterances[entry]
            samples = read_audio(audio.wav_scp[utterance.utterance_id], sample_rate=RATE)
            # The place by its definition: the draw of the crop, in frames.
            draw = np.random.default_rng([7, epoch, entry]).random()
            start = draw * (len(samples) - SAMPLES) / SHIFT
            frames = raw.num_frames(len(samples))
            first = min(round(start), frames - FRAMES)
            assert abs(first - start) <= 0.5
            place = samples[first * SHIFT : first * SHIFT + SAMPLES]
            online = raw(torch.from_numpy(place)[None])[0].numpy()
            if form == "float32":
                np.testing.assert_allclose(crop.samples, online, rtol=0, atol=1e-5)
            elif form == "float16":
                np.testing.assert_allclose(crop.samples, online, rtol=2**-11, atol=1e-5)
            else:
                whole = raw(torch.from_numpy(samples)[None])[0].numpy()
                step = np.ptp(whole, axis=0) / 126 + np.ptp(whole) / 65535
                assert (np.abs(crop.samples - online) <= step + 1e-5).all()


def test_place_masks_and_label_are_those_of_the_crop_of_the_waveform(features, speech, tmp_path):
    stored = crops_of(features["float32"], tmp_path, **STORED)
    online = crops_of(speech, tmp_path, data__speeds=[1.0], augment__dither=0.0)
    assert len(stored) == len(online)
    near = far = 0.0
    for entry in range(len(stored)):
        ours, theirs = stored[2, entry], online[2, entry]
        np.testing.assert_array_equal(ours.masks, theirs.masks)
        assert (ours.label, ours.entry) == (theirs.label, theirs.entry)
        expected = FRONT_END(torch.from_numpy(theirs.samples)[None])[0]
        near += float((FRONT_END.normalise_(torch.from_numpy(ours.samples)[None].clone())[0] - expected).abs().mean())
        other = torch.from_numpy(stored[3, entry].samples)[None].clone()
        far += float((FRONT_END.normalise_(other)[0] - expected).abs().mean())
    assert near < 0.7 * far, "half a frame beside the crop of the waveform, not anywhere"


def test_a_short_utterance_is_repeated_frame_by_frame(features, tmp_path):
    stored = crops_of(features["float32"], tmp_path, **STORED, data__crop_frames=150)
    with feature_archive.open_features(stored.training_set.utterances[4].path, BINS) as matrix:
        whole = matrix.read(0, matrix.rows)
    assert len(whole) < 100
    expected = whole[np.arange(150) % len(whole)]
    np.testing.assert_array_equal(stored[5, 4].samples, expected)


def test_a_batch_becomes_what_the_network_sees(features, tmp_path):
    stored = crops_of(features["float32"], tmp_path, **STORED)
    batch = collate_crops([stored[0, entry] for entry in range(3)])
    assert batch.waveforms.shape == (3, FRAMES, BINS)
    expected = batch.waveforms.double()
    expected = expected - expected.mean(dim=1, keepdim=True)
    torch.testing.assert_close(FRONT_END.features_of(batch.waveforms), expected.float(), rtol=0, atol=1e-5)
    untouched = build_front_end(num_bins=BINS, remove_mean=False).features_of(batch.waveforms)
    assert untouched is batch.waveforms


def write_exact_corpus(folder: Path) -> Path:
    """Utterances of just a crop's samples, so that every crop begins at 0."""
    kaldi_dir = KaldiDir()
    for speaker in range(5):
        for number in range(4):
            name = f"s{speaker}-{number}"
            path = folder / f"{name}.flac"
            folder.mkdir(exist_ok=True)
            soundfile.write(path, synthesise_voice(speaker, number, SAMPLES / RATE), RATE, subtype="PCM_16")
            kaldi_dir.wav_scp[name], kaldi_dir.utt2spk[name] = str(path), f"s{speaker}"
            kaldi_dir.utt2dur[name] = SAMPLES / RATE
    kaldi_dir.write(folder / "data")
    return folder / "data"


def test_training_on_stored_features_is_training_on_line(tmp_path):
    data = write_exact_corpus(tmp_path / "exact")
    write_features_of(data, tmp_path / "stored")
    assert train(tiny_config(data, tmp_path / "online", data__speeds=[1.0], augment__dither=0.0)) is None
    assert train(tiny_config(tmp_path / "stored", tmp_path / "offline", **STORED)) is None
    online, offline = read_records(tmp_path / "online"), read_records(tmp_path / "offline")
    assert [record["kind"] for record in online] == [record["kind"] for record in offline]
    for name in ("loss", "validation_eer"):
        pairs = [(ours[name], theirs[name]) for ours, theirs in zip(offline, online, strict=True) if name in ours]
        np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-3)


def test_any_number_of_workers_and_any_stop_give_the_same_numbers(features, tmp_path, monkeypatch):
    assert train(tiny_config(features["float16"], tmp_path / "one", **STORED, trainer__epochs=1)) is None
    config = tiny_config(features["float16"], tmp_path / "two", **STORED, trainer__epochs=1, data__num_workers=2)
    with monkeypatch.context() as patched:
        fail_after(patched, 3)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(replace(config, data=replace(config.data, source=None))) is None
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_held_out_speakers_are_a_feature_directory(features, tmp_path):
    """So that the figures of the validation can be computed again."""
    assert train(tiny_config(features["float32"], tmp_path / "exp", **STORED, trainer__epochs=1)) is None
    folder = tmp_path / "exp" / "validation"
    assert {path.name for path in folder.iterdir()} == {
        "feats.scp", "features.yaml", "spk2utt", "trials", "utt2dur", "utt2spk"
    }  # fmt: skip
    assert (folder / "features.yaml").read_bytes() == (features["float32"] / "features.yaml").read_bytes()
    assert len(KaldiDir.read(folder, source="features").speakers) == 2


def test_the_log_says_that_no_audio_is_read(features, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("svtoolkit.training.dry_run.PASSES", 1)
    monkeypatch.setattr("svtoolkit.training.dry_run.SECONDS", 0.0)
    with caplog.at_level("INFO"):
        dry_run(tiny_config(features["float16"], tmp_path, **STORED))
    assert "crops are stretches of stored features (float16): no audio is read" in caplog.text


def test_other_features_are_other_data(features, speech, tmp_path):
    """Where one directory has both, the same paths lead to other crops."""
    both = tmp_path / "both"
    both.mkdir()
    for path in (*features["float32"].iterdir(), speech / "wav.scp"):
        if path.is_file():
            (both / path.name).write_bytes(path.read_bytes())
    assert train(tiny_config(both, tmp_path / "exp", **STORED, trainer__epochs=1)) is None
    with pytest.raises(UserError, match="the saved run was trained on other data"):
        train(tiny_config(both, tmp_path / "exp", **{**STORED, "data__source": "files"}, trainer__epochs=1))
    fingerprints = {
        TrainingData(tiny_config(data, tmp_path, **{**STORED, "data__source": None})).fingerprint()
        for data in (speech, *features.values())
    }
    assert len(fingerprints) == 4


REFUSED = [
    ({"data__speeds": [1.0, 0.9, 1.1]}, r"data\.speeds is \[1\.0, 0\.9, 1\.1\]; set data\.speeds=\[1\.0\]"),
    ({"data__warps": [1.0, 0.9]}, r"data\.warps is \[1\.0, 0\.9\]; set data\.warps=\[1\.0\]"),
    ({"augment__dither": 1.0}, r"augment\.dither is 1\.0; set augment\.dither=0"),
    ({"augment__noise": "/nowhere"}, r"augment\.noise is /nowhere; set augment\.noise=null"),
    ({"augment__reverberation": "/nowhere"}, r"augment\.reverberation is /nowhere; set augment\.reverberation=null"),
    ({"augment__gain": [-3.0, 3.0]}, r"augment\.gain is \[-3\.0, 3\.0\]; set augment\.gain=\[0\.0, 0\.0\]"),
    ({"augment__telephone_probability": 0.5}, r"augment\.telephone_probability is 0\.5; set augment\.tel\w+=0"),
    ({"augment__added": {"clipping": {}}}, r"augment\.added is \{'clipping': \{\}\}; set augment\.added=\{\}"),
    ({"data__channel": 0}, r"data\.channel is 0; set data\.channel=null"),
    ({"data__resample": True}, r"data\.resample is true; set data\.resample=false"),
    ({"data__shuffle_shards": 3}, r"data\.shuffle_shards is 3; set data\.shuffle_shards=null"),
    ({"data__cache_dir": "/c"}, r"data\.cache_dir is /c; set data\.cache_dir=null"),
    (
        {"augment__dither": 1.0, "data__speeds": [0.9]},
        r"data\.speeds is \[0\.9\] and augment\.dither is 1\.0; set data\.speeds=\[1\.0\] augment\.dither=0",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
@pytest.mark.parametrize("source", ["features", None])
def test_what_changes_waveforms_is_refused_by_name_before_anything_is_read(
    features, tmp_path, monkeypatch, changes, message, source
):
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("something is read"))
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("something is read"))
    config = tiny_config(features["float32"], tmp_path / "exp", **{**STORED, "data__source": source, **changes})
    with pytest.raises(UserError, match=f"float32: is read as features .*, but {message}, or train on the audio"):
        train(config)
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_bins": 30},
            r"features\.num_bins is 30, but .* with 24 \(\S+\.yaml\); set features\.num_bins=24",
        ),
        ({"window": "povey"}, r"features\.window is povey, but .* computed with hamming .*features\.window=povey`"),
        ({"frame_shift_ms": 12.5}, r"features\.frame_shift_ms is 12\.5, but .* with 10\.0 "),
        ({"sample_rate": 8000}, r"features\.sample_rate is 8000, but .* with 16000 "),
        ({"int16_scale": False}, r"features\.int16_scale is false, but .* with true "),
        ({"backend": "torchaudio"}, r"features\.backend is torchaudio, but .* with torch "),
    ],
)
def test_another_front_end_is_refused_with_the_key_and_both_values(features, tmp_path, changes, message):
    config = tiny_config(features["float32"], tmp_path / "exp", **STORED)
    config.features = replace(config.features, **changes)
    with pytest.raises(UserError, match=message):
        train(config)
    assert not (tmp_path / "exp").exists()


def test_whether_the_mean_is_removed_is_the_choice_of_the_run(features, tmp_path):
    config = tiny_config(features["float32"], tmp_path / "exp", **STORED)
    config.features.remove_mean = False
    assert TrainingData(config).stored is not None


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "features.yaml").unlink(), r"features\.yaml: there is no such file, which says how"),
        (lambda folder: (folder / "features.yaml").write_text("a: 1"), r"features\.yaml: expected `format` and `feat"),
        (lambda folder: (folder / "features.yaml").write_text(": ["), r"features\.yaml: expected `format` and `feat"),
        (lambda folder: (folder / "utt2dur").unlink(), r"utt2dur: there is no such file; copy the directory as"),
        (lambda folder: (folder / "feats.scp").unlink(), r"feats\.scp: the file is missing; every data directory"),
    ],
)
def test_a_directory_that_is_not_whole_is_a_sentence(speech, tmp_path, harm, message):
    write_features_of(speech, tmp_path / "features")
    harm(tmp_path / "features")
    with pytest.raises(UserError, match=message):
        train(tiny_config(tmp_path / "features", tmp_path / "exp", **STORED))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_archive_that_is_cut_off_is_a_sentence_from_any_process(speech, tmp_path, num_workers):
    write_features_of(speech, tmp_path / "features")
    archive = tmp_path / "features" / "feats-000000.ark"
    archive.write_bytes(archive.read_bytes()[:1000])
    config = tiny_config(
        tmp_path / "features",
        tmp_path / "exp",
        **STORED,
        data__num_workers=num_workers,
        validation__speakers=0,
        data__max_bad=0.0,
    )
    with pytest.raises(UserError, match=r"feats-000000\.ark:\d+: no features can be read there \(.*\); compute the"):
        train(config)


def blow_up(folder: Path, *utterances: str) -> None:
    """Some utterances' features of float32 become infinite."""
    for utterance in utterances:
        archive, _, offset = KaldiDir.read(folder, source="features").wav_scp[utterance].rpartition(":")
        with feature_archive.open_features(f"{archive}:{offset}", BINS) as matrix:
            size = 4 * matrix.rows * matrix.columns
        with open(archive, "r+b") as stream:
            stream.seek(int(offset) + 15)
            stream.write(np.full(size // 4, np.inf, "<f4").tobytes())


def listed(exp_dir: Path) -> set[str]:
    return {line.split("\t")[0] for line in (exp_dir / "bad_files.tsv").read_text().splitlines()[1:]}


def test_a_crop_of_bad_features_is_one_of_another_utterance(speech, tmp_path):
    write_features_of(speech, tmp_path / "features")
    whole = crops_of(tmp_path / "features", tmp_path / "exp", **STORED)
    first = whole.training_set.utterances[0].utterance_id
    good = [whole[1, entry] for entry in range(len(whole))]
    blow_up(tmp_path / "features", first)
    stored = crops_of(tmp_path / "features", tmp_path / "exp", **STORED)
    for entry, before in enumerate(good[1:], start=1):
        np.testing.assert_array_equal(stored[1, entry].samples, before.samples)
    instead = stored[1, 0]
    assert list(instead.bad) == [0]
    assert "holds features that are NaN or infinite; compute the features again" in instead.bad[0]
    assert instead.entry == np.random.default_rng([7, 1, 0, 1]).integers(len(stored))
    assert instead.label == good[instead.entry].label
    assert np.isfinite(instead.samples).all()
    np.testing.assert_array_equal(stored[1, 0].samples, instead.samples)


def test_where_all_features_are_bad_it_is_a_sentence(speech, tmp_path):
    write_features_of(speech, tmp_path / "features")
    blow_up(tmp_path / "features", *KaldiDir.read(speech).utt2spk)
    with pytest.raises(UserError, match=r"NaN or infinite; .* \(19 utterances drawn in its place cannot be used eit"):
        crops_of(tmp_path / "features", tmp_path / "exp", **STORED)[0, 0]


def test_bad_features_of_training_and_validation_are_left_out_and_listed(speech, tmp_path):
    write_features_of(speech, tmp_path / "features")
    data = TrainingData(tiny_config(tmp_path / "features", tmp_path / "exp", **STORED))
    bad = {data.training_set.utterances[3].utterance_id, data.held_out[2].utterance_id}
    blow_up(tmp_path / "features", *bad)
    with pytest.raises(UserError, match=r"with data\.max_bad=0 0 may be: .*NaN or infinite; .* raise data\.max_bad,"):
        train(tiny_config(tmp_path / "features", tmp_path / "strict", **STORED, data__max_bad=0.0))
    assert train(tiny_config(tmp_path / "features", tmp_path / "exp", **STORED, data__max_bad=0.1)) is None
    assert listed(tmp_path / "exp") == bad
    assert not bad & set(KaldiDir.read(tmp_path / "exp" / "validation", source="features").utt2spk)
    records = read_records(tmp_path / "exp")
    assert all(record["loss"] > 0 for record in records if "loss" in record)
    assert len([record for record in records if "validation_eer" in record]) == 2


def test_relative_archives_are_taken_from_root(features, tmp_path, monkeypatch):
    """A directory that was moved can be read, as one of audio."""
    folder = tmp_path / "features"
    folder.mkdir()
    for path in features["float32"].glob("*"):
        if path.is_file():
            content = path.read_bytes().replace(f"{features['float32']}/".encode(), b"")
            (folder / path.name).write_bytes(content)
    there = crops_of(features["float32"], tmp_path, **STORED)
    moved = crops_of(folder, tmp_path, **STORED, data__root=str(folder))
    np.testing.assert_array_equal(moved[1, 9].samples, there[1, 9].samples)


def test_the_settings_are_plain_yaml(features):
    assert yaml.safe_load((features["compressed"] / "features.yaml").read_text())["format"] == "compressed"
