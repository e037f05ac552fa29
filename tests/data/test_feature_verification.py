"""`svt validate` of features: what is broken is found where it is, left out of a copy, or taken out up to a share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import kaldiio
import numpy as np
import pytest
import yaml
from feature_material import BINS, write_features_of
from speech_material import write_speech

from svtoolkit.cli import main
from svtoolkit.data.bad_files import read_bad_files
from svtoolkit.data.feature_archive import read_features
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.tables import read_table
from svtoolkit.data.validation import validate

LAST = "spk2-utt1"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Two archives, of 4 and 2 utterances; not to be changed."""
    folder = tmp_path_factory.mktemp("features")
    write_features_of(write_speech(folder / "speech", speakers=3, utterances=2), folder / "out", per_archive=4)
    return folder / "out"


@pytest.fixture
def data(written, tmp_path) -> Path:
    """A copy that may be changed."""
    folder = Path(shutil.copytree(written, tmp_path / "data"))
    table = folder / "feats.scp"
    table.write_text(table.read_text().replace(str(written), str(folder)))
    return folder


def entries(folder: Path, name: str) -> dict[str, str]:
    return {key: value for key, (_, value) in read_table(folder / name, []).items()}


def cut(folder: Path) -> None:
    archive = folder / "feats-000001.ark"
    archive.write_bytes(archive.read_bytes()[:-500])


def poison(folder: Path) -> None:
    location = entries(folder, "feats.scp")[LAST]
    archive, offset = Path(location.rpartition(":")[0]), int(location.rpartition(":")[2])
    content = bytearray(archive.read_bytes())
    content[offset + 15 : offset + 19] = np.float32("nan").tobytes()
    archive.write_bytes(content)


def swap(folder: Path) -> None:
    """The last two utterances have each other's features."""
    lines = entries(folder, "feats.scp")
    lines["spk2-utt0"], lines[LAST] = lines[LAST], lines["spk2-utt0"]
    (folder / "feats.scp").write_text("".join(f"{name} {place}\n" for name, place in lines.items()))


def change(name: str, value: str) -> Callable[[Path], None]:
    """The last line of a table with another value."""

    def apply(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join([*lines[:-1], f"{lines[-1].split()[0]} {value}"]) + "\n")

    return apply


FAULTS: list[tuple[Callable[[Path], None], list[tuple[str, str]], str]] = [
    (
        cut,
        [("archive-size", "feats.scp:6"), ("unreadable-features", "feats.scp:6")],
        "the archive ends 500 bytes too early",
    ),
    (
        lambda folder: (folder / "feats-000001.ark").unlink(),
        [("unreadable-features", "feats.scp:5"), ("unreadable-features", "feats.scp:6")],
        "the archive cannot be opened",
    ),
    (poison, [("not-finite", "feats.scp:6")], "NaN or infinite"),
    (swap, [("other-features", "feats.scp:5"), ("other-features", "feats.scp:6")], "is not preceded by its name"),
    (change("utt2num_frames", "7"), [("wrong-num-frames", "utt2num_frames:6")], "frames, the table says 7"),
    (lambda folder: (folder / "utt2num_frames").unlink(), [("no-num-frames", "utt2num_frames")], "is missing"),
    (change("utt2dur", "77"), [("wrong-duration", "utt2dur:6")], "the table says 77 s"),
]
IDS = ["cut", "gone", "nan", "swapped", "num_frames", "no num_frames", "duration"]


def test_a_sound_directory(written):
    found = validate(written, jobs=2)
    assert found.faults == []
    assert (found.speakers, found.utterances) == (3, 6)
    assert found.frames == {name: int(count) for name, count in entries(written, "utt2num_frames").items()}
    assert found.hours == pytest.approx(sum(map(float, entries(written, "utt2dur").values())) / 3600)


@pytest.mark.parametrize(("harm", "expected", "says"), FAULTS, ids=IDS)
def test_a_fault_is_found_where_it_is_and_is_not_in_the_repaired_copy(harm, expected, says, data, tmp_path):
    harm(data)
    faults = validate(data).faults
    assert [(fault.code, fault.where) for fault in faults] == expected
    assert any(says in fault.message for fault in faults)
    copy = tmp_path / "copy"
    assert main(["validate", str(data), "--fix", str(copy)]) == 0
    assert validate(copy).faults == []
    lost = {fault.utterance for fault in faults} - {None}
    kept = KaldiDir.read(copy, source="features")
    assert kept.utt2spk.keys() == KaldiDir.read(data, source="features").utt2spk.keys() - lost
    for name, location in kept.wav_scp.items():
        assert len(read_features(location, BINS)) == int(entries(copy, "utt2num_frames")[name])
    assert yaml.safe_load((copy / "features.yaml").read_text()) == yaml.safe_load((data / "features.yaml").read_text())


def test_tables_alone(data, capsys):
    cut(data)
    assert main(["validate", str(data), "check_audio=false"]) == 0
    assert capsys.readouterr().out == f"{data}: 3 speakers, 6 utterances, 0.00 h\nno fault found\n"


def test_bad_features_are_taken_out_and_listed_up_to_a_share(data, capsys):
    cut(data)
    assert main(["validate", str(data)]) == 1
    assert f"{data}/feats.scp:6: '{LAST}': " in capsys.readouterr().err
    assert main(["validate", str(data), "max_bad=0.1"]) == 0
    assert f"left out: {LAST}: feats.scp:6: " in capsys.readouterr().out
    assert [(bad.utterance_id, bad.path.rpartition(":")[0]) for bad in read_bad_files(data)] == [
        (LAST, f"{data}/feats-000001.ark")
    ]
    for name in ("feats.scp", "utt2spk", "utt2dur", "utt2num_frames"):
        assert len(entries(data, name)) == 5
    assert dict(kaldiio.load_scp(str(data / "feats.scp"))).keys() == entries(data, "utt2spk").keys()
    assert main(["validate", str(data)]) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "features.yaml: there is no such file, which says how the features were computed"),
        ("format: float32\nfeatures: {num_bins: many}\n", "features.yaml: expected num_bins, frame_length_ms"),
    ],
)
def test_features_of_unknown_settings_are_a_fault_that_no_copy_mends(content, says, data, tmp_path, capsys):
    (data / "features.yaml").unlink()
    if content is not None:
        (data / "features.yaml").write_text(content)
    assert main(["validate", str(data)]) == 1
    assert f"{data}/{says}" in capsys.readouterr().err
    assert main(["validate", str(data), "--fix", str(tmp_path / "copy")]) == 1
    assert f"error: {data}/{says}" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_what_is_of_audio_alone_is_refused(written, capsys):
    assert main(["validate", str(written), "sample_rate=16000"]) == 1
    assert "holds features, of which no audio can be had; leave out sample_rate and channel" in capsys.readouterr().err
