"""Every corpus by name: one row each. Its module is imported when it is prepared."""

from __future__ import annotations

from svtoolkit.registry import Registry, Row

CORPORA = Registry(
    "corpus",
    "svtoolkit.corpora",
    {
        "synthetic": Row("svtoolkit.corpora.synthetic.corpus:prepare_synthetic", help="invented speakers, no download"),
        "kaldi": Row("svtoolkit.corpora.kaldi:prepare_kaldi", help="Kaldi data directories, joined"),
        "folders": Row("svtoolkit.corpora.speaker_folders:prepare_speaker_folders", help="one folder a speaker"),
        "librispeech": Row("svtoolkit.corpora.librispeech:prepare_librispeech", help="LibriSpeech"),
        "musan": Row("svtoolkit.corpora.musan:prepare_musan", help="MUSAN: noise, music, speech"),
        "rirs_noises": Row("svtoolkit.corpora.rirs_noises:prepare_rirs_noises", help="impulse responses"),
        "noise": Row("svtoolkit.corpora.own_sounds:prepare_noise", help="noises of your own, a folder of files"),
        "rirs": Row("svtoolkit.corpora.own_sounds:prepare_rirs", help="impulse responses of your own"),
        "voxceleb1": Row("svtoolkit.corpora.voxceleb_trials:prepare_with_trials", help="VoxCeleb1 and its trials"),
        "voxceleb2": Row("svtoolkit.corpora.voxceleb:prepare_voxceleb2", help="VoxCeleb2"),
        "cnceleb": Row("svtoolkit.corpora.cnceleb:prepare_cnceleb", help="CN-Celeb1 and 2 and their trials"),
    },
)
"""Name -> how a corpus becomes a data directory.

A target is a function that returns a KaldiDir, or a ``Prepared`` where there is more. What it is given follows from
the names of its parameters: ``folder``, the one folder of the corpus, or ``sources``, one folder or more; ``measure``,
which reads the durations of files and lists the bad ones; and any key of ``svt prepare``, such as ``jobs`` or ``part``.
A key that it does not name is refused."""
