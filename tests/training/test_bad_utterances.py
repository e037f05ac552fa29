"""Bad files in a run: left out up to data.max_bad, listed in one table, and the run goes on with the same numbers."""

from __future__ import annotations

import pytest
from bad_audio import with_bad_files
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config

from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import draw_eval_speakers
from svtoolkit.data.trials import read_trials
from svtoolkit.errors import UserError
from svtoolkit.training.experiment import train


@pytest.fixture(scope="module")
def held_out(speech) -> set[str]:
    kaldi_dir = KaldiDir.read(speech)
    counts = {speaker: len(utterances) for speaker, utterances in kaldi_dir.spk2utt.items()}
    return draw_eval_speakers(counts, eval_speakers=2, seed=7)


@pytest.fixture(scope="module")
def trained_on(speech, held_out) -> list[str]:
    return [utterance for utterance, speaker in KaldiDir.read(speech).utt2spk.items() if speaker not in held_out]


SHORT = {"trainer__epochs": 1, "data__speeds": [1.0], "trainer__checkpoint_steps": 0}
"""Changes of the tiny run: four steps, in which every utterance is seen but for four."""


def listed(exp_dir) -> dict[str, str]:
    head, *lines = (exp_dir / "bad_files.tsv").read_text().splitlines()
    assert head == "utterance\tfile\treason"
    rows = [line.split("\t") for line in lines]
    return {name: reason for name, _, reason in rows}


def test_training_goes_on_and_lists_them(speech, trained_on, tmp_path, caplog):
    bad = dict(zip(trained_on[::7], ("nan", "broken", "silent", "zeros", "gone"), strict=False))
    data = with_bad_files(speech, tmp_path, bad)
    assert train(tiny_config(data, tmp_path / "exp", trainer__epochs=1, data__max_bad=0.2)) is None
    assert listed(tmp_path / "exp").keys() == bad.keys()
    records = read_records(tmp_path / "exp")
    assert not [message for message in caplog.messages if "not finite" in message]
    assert sum("left out, see" in message for message in caplog.messages) == len(bad)
    assert len([record for record in records if record["kind"] == "step"]) == 13
    assert all(record["loss"] > 0 for record in records if "loss" in record)


def test_stopped_and_resumed_by_other_workers_it_has_the_same_numbers(speech, trained_on, tmp_path, monkeypatch):
    bad = dict(zip(trained_on[::9], ("nan", "broken", "silent"), strict=False))
    data = with_bad_files(speech, tmp_path, bad)
    changes = {"data__max_bad": 0.2, "trainer__epochs": 1}
    assert train(tiny_config(data, tmp_path / "whole", **changes, data__num_workers=2)) is None
    config = tiny_config(data, tmp_path / "exp", **changes)
    with monkeypatch.context() as patch:
        fail_after(patch, 8)
        with pytest.raises(RuntimeError):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    assert (tmp_path / "exp" / "bad_files.tsv").read_bytes() == (tmp_path / "whole" / "bad_files.tsv").read_bytes()


def test_too_many_end_it_and_the_table_says_which(speech, trained_on, tmp_path):
    bad = dict.fromkeys(trained_on[:8], "broken")
    data = with_bad_files(speech, tmp_path, bad)
    message = (
        r"of 48 files cannot be used, with data\.max_bad=0\.05 2 may be: .*exp/bad_files\.tsv lists them: .* raise "
    )
    with pytest.raises(UserError, match=message):
        train(tiny_config(data, tmp_path / "exp", data__max_bad=0.05))
    assert len(listed(tmp_path / "exp")) > 2


def test_none_may_be_bad_where_that_is_asked_for(speech, trained_on, tmp_path):
    data = with_bad_files(speech, tmp_path, {trained_on[3]: "zeros"})
    with pytest.raises(UserError, match=r"^1 of 48 files cannot be used, with data\.max_bad=0 0 may be: .* is silent"):
        train(tiny_config(data, tmp_path / "exp", data__max_bad=0.0))
    with pytest.raises(UserError, match=r"data\.max_bad is 1\.5, expected a share of the utterances from 0 to 1"):
        train(tiny_config(data, tmp_path / "exp", data__max_bad=1.5))


@pytest.mark.parametrize("kind", ["nan", "zeros", "broken"])
def test_a_bad_file_of_a_held_out_speaker_is_found_before_the_first_step(kind, speech, held_out, tmp_path):
    name = KaldiDir.read(speech).spk2utt[min(held_out)][2]
    data = with_bad_files(speech, tmp_path, {name: kind})
    with pytest.raises(UserError, match=rf"with data\.max_bad=0 0 may be: .*{name}\.wav"):
        train(tiny_config(data, tmp_path / "strict", data__max_bad=0.0))
    assert not (tmp_path / "strict" / "logs" / "history.jsonl").exists()
    assert train(tiny_config(data, tmp_path / "exp", **SHORT)) is None
    assert listed(tmp_path / "exp").keys() == {name}
    assert name not in read_trials(tmp_path / "exp" / "validation" / "trials").utterances
    assert len([record for record in read_records(tmp_path / "exp") if "validation_eer" in record]) == 1


def test_held_out_speakers_without_any_audio(speech, held_out, tmp_path):
    names = [name for name, speaker in KaldiDir.read(speech).utt2spk.items() if speaker in held_out]
    data = with_bad_files(speech, tmp_path, dict.fromkeys(names, "nan"))
    with pytest.raises(UserError, match=r"^validation: no utterance of the held-out speakers can be used: .*NaN"):
        train(tiny_config(data, tmp_path / "exp", data__max_bad=1.0))


def test_a_file_whose_length_no_table_gives_and_no_header_is_left_out(speech, trained_on, tmp_path):
    data = with_bad_files(speech, tmp_path, {trained_on[5]: "broken"})
    (data / "utt2dur").unlink()
    assert train(tiny_config(data, tmp_path / "exp", **SHORT)) is None
    assert listed(tmp_path / "exp").keys() == {trained_on[5]}


def test_a_table_of_a_run_that_never_began_is_not_counted(speech, trained_on, tmp_path):
    data = with_bad_files(speech, tmp_path, {trained_on[3]: "zeros"})
    with pytest.raises(UserError):
        train(tiny_config(data, tmp_path / "exp", trainer__epochs=1, data__max_bad=0.0))
    assert trained_on[3] in listed(tmp_path / "exp")
    kaldi_dir = KaldiDir.read(speech)
    kaldi_dir.write(data)
    assert train(tiny_config(data, tmp_path / "exp", trainer__epochs=1, data__max_bad=0.0)) is None
    assert not (tmp_path / "exp" / "bad_files.tsv").exists()
