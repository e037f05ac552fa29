"""MUSAN and RIRS_NOISES, in miniature with the layout of their archives."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile
from paths import SHARED

from svtoolkit.corpora import musan, rirs_noises
from svtoolkit.corpora.musan import prepare_musan
from svtoolkit.corpora.rirs_noises import prepare_rirs_noises
from svtoolkit.errors import UserError

DATA = SHARED / "data"
RATE = 16000


def write(path: Path, seconds: float = 0.1, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full((round(seconds * RATE), channels), 0.1), RATE)


@pytest.fixture
def small_musan(tmp_path) -> Path:
    folder = tmp_path / "corpora" / "musan"
    for category, source in (
        ("noise", "free-sound"),
        ("noise", "sound-bible"),
        ("music", "fma"),
        ("speech", "librivox"),
    ):
        for number in range(2):
            write(folder / category / source / f"{category}-{source}-{number:04d}.wav", 0.1 * (number + 1))
        for name in ("LICENSE", "ANNOTATIONS"):
            (folder / category / source / name).write_text("Creative Commons")
    (folder / "README").write_text("MUSAN")
    return folder


@pytest.mark.parametrize("above", [False, True])
def test_musan(small_musan, above, caplog):
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        kaldi_dir = prepare_musan(small_musan.parent if above else small_musan, jobs=2)
    assert list(kaldi_dir.wav_scp) == sorted(kaldi_dir.wav_scp)
    assert len(kaldi_dir.wav_scp) == 8
    assert kaldi_dir.speakers == ["music", "noise", "speech"]
    assert kaldi_dir.utt2spk["noise-noise-free-sound-0001"] == "noise"
    assert kaldi_dir.utt2dur["music-music-fma-0001"] == pytest.approx(0.2)
    assert caplog.messages == ["musan: 8 files: the whole corpus has 2016"]


def test_all_of_musan_is_complete(small_musan, caplog, monkeypatch):
    monkeypatch.setattr(musan, "FILES", 8)
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        prepare_musan(small_musan)
    assert caplog.messages == ["musan: 8 files: complete"]


def test_a_part_of_musan(small_musan):
    for category in ("music", "speech"):
        (small_musan / category).rename(small_musan.parent / category)
    assert prepare_musan(small_musan).speakers == ["noise"]


def test_real_recordings_laid_out_without_sources():
    folder = DATA / "musan_mini"
    if not folder.is_dir():
        pytest.skip("the shared data pack is not beside the repository")
    kaldi_dir = prepare_musan(folder)
    counts = {speaker: len(utterances) for speaker, utterances in kaldi_dir.spk2utt.items()}
    assert counts == {"music": 14, "noise": 85, "speech": 24}
    assert sum(kaldi_dir.utt2dur.values()) == pytest.approx(418 + 200 + 240, abs=2)


def test_what_is_no_musan(tmp_path):
    with pytest.raises(
        UserError, match=r"nowhere: there is no such folder; expected MUSAN, unpacked: noise, music, speech"
    ):
        prepare_musan(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"none of noise, music, speech is in it; expected <category>/<source>/<file>\.wav"
    ):
        prepare_musan(tmp_path)
    (tmp_path / "noise").mkdir()
    with pytest.raises(UserError, match=r"noise hold no wav or flac"):
        prepare_musan(tmp_path)
    write(tmp_path / "noise" / "a" / "one.wav")
    write(tmp_path / "noise" / "b" / "one.wav")
    with pytest.raises(UserError, match=r"utterance 'noise-one' is both .*/a/one\.wav and .*/b/one\.wav; keep one"):
        prepare_musan(tmp_path)


@pytest.fixture
def small_rirs(tmp_path) -> Path:
    folder = tmp_path / "corpora" / "RIRS_NOISES"
    for size in ("smallroom", "mediumroom", "largeroom"):
        for room in (1, 2):
            for number in (1, 2):
                write(folder / "simulated_rirs" / size / f"Room{room:03d}" / f"Room{room:03d}-{number:05d}.wav")
        (folder / "simulated_rirs" / size / "rir_list").write_text("--rir-id x --room-id y z.wav\n")
        (folder / "simulated_rirs" / size / "room_info").write_text("Room001 2.1 3.2 2.9\n")
    real = folder / "real_rirs_isotropic_noises"
    for name, channels in (("air_type1_air_binaural_aula_carolina_0_1_3", 2), ("RWCP_type1_rir_cirline_jr1_imp090", 8)):
        write(real / f"{name}.wav", 0.3, channels)
    for name in ("RWCP_type1_noise_circle_ane_01", "RVB2014_type1_noise_simroom1_1"):
        write(real / f"{name}.wav", 2.0)
    (real / "rir_list").write_text(
        "--rir-id 00001 --room-id AULA_CAROLINA  RIRS_NOISES/real_rirs_isotropic_noises/"
        "air_type1_air_binaural_aula_carolina_0_1_3.wav\n"
        "--rir-id 00002 --room-id JR1 --rt60 0.6 "
        "RIRS_NOISES/real_rirs_isotropic_noises/RWCP_type1_rir_cirline_jr1_imp090.wav\n\n"
    )
    (real / "noise_list").write_text("--noise-id 1 --noise-type isotropic RWCP_type1_noise_circle_ane_01.wav\n")
    write(folder / "pointsource_noises" / "noise-free-sound-0000.wav", 3.0)
    return folder


@pytest.mark.parametrize("above", [False, True])
def test_rirs_noises(small_rirs, above, caplog):
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        kaldi_dir = prepare_rirs_noises(small_rirs.parent if above else small_rirs)
    counts = {speaker: len(utterances) for speaker, utterances in kaldi_dir.spk2utt.items()}
    assert counts == {"largeroom": 4, "mediumroom": 4, "real": 2, "smallroom": 4}
    assert kaldi_dir.utt2spk["smallroom-Room002-00001"] == "smallroom"
    assert kaldi_dir.wav_scp["largeroom-Room002-00001"].endswith("simulated_rirs/largeroom/Room002/Room002-00001.wav")
    assert kaldi_dir.utt2dur["real-RWCP_type1_rir_cirline_jr1_imp090"] == pytest.approx(0.3)
    assert not any("noise" in utterance for utterance in kaldi_dir.wav_scp)
    assert caplog.messages == [
        "rirs_noises: 12 simulated and 2 real impulse responses: the whole corpus has 60000 and 325"
    ]


def test_all_of_rirs_noises_is_complete(small_rirs, caplog, monkeypatch):
    monkeypatch.setattr(rirs_noises, "FILES", (12, 2))
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        prepare_rirs_noises(small_rirs)
    assert caplog.messages[0].endswith(": complete")


def test_simulated_responses_alone(small_rirs):
    (small_rirs / "real_rirs_isotropic_noises").rename(small_rirs.parent / "elsewhere")
    (small_rirs / "simulated_rirs" / "largeroom").rename(small_rirs.parent / "large")
    assert prepare_rirs_noises(small_rirs).speakers == ["mediumroom", "smallroom"]


def test_what_is_no_rirs_noises(small_rirs, tmp_path):
    with pytest.raises(
        UserError, match=r"nowhere: there is no such folder; expected RIRS_NOISES, unpacked: simulated_rirs"
    ):
        prepare_rirs_noises(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"no impulse response is there; expected simulated_rirs/{smallroom,mediumroom,"
    ):
        prepare_rirs_noises(tmp_path)
    listing = small_rirs / "real_rirs_isotropic_noises" / "rir_list"
    with listing.open("a") as stream:
        stream.write("--rir-id 3 --room-id x RIRS_NOISES/real_rirs_isotropic_noises/gone.wav\n")
    with pytest.raises(UserError, match=r"rir_list:4: there is no file .*/gone\.wav; unpack the archive again"):
        prepare_rirs_noises(small_rirs)
    listing.unlink()
    with pytest.raises(
        UserError, match=r"rir_list: the file is missing; it tells the impulse responses from the noises"
    ):
        prepare_rirs_noises(small_rirs)
