"""A row a family of WeSpeaker's and 3D-Speaker's: their network, small, and the release that their tools make of it.

Where a constructor of theirs has one size alone, the class behind it is given a smaller one, and the row of ours that
config.yaml names is made as narrow (``narrowed``): everything between the file and the embedding is as published.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import kaldi_native_fbank
import numpy as np
import torch
import yaml
from foreign_networks import randomise, shallow_campplus
from network_material import NARROW
from torch import nn

from svtoolkit.models.registry import NETWORKS

DIM, SPEAKERS = 24, 30
LENGTHS = {"0.6 s": 9_600, "3.17 s": 50_720, "20 s": 320_000}
USUAL = {"0.6 s": (1, 3), "3.17 s": (3,)}
LONG = {**USUAL, "20 s": (1,)}
QUICK = {"0.6 s": (1, 3), "3.17 s": (1,)}
"""Sound that is embedded -> batches of it: 20 s of one network that averages, one that attends and one
that weighs all frames, and little where a network is large."""


class Family(NamedTuple):
    """A row.

    Attributes:
        toolkit: wespeaker or speakerlab.
        module, constructor, arguments: of its network.
        name: of ours.
        narrow: arguments of our row for the same sizes.
        model: what config.yaml calls it; of 3D-Speaker the model_config of its configuration.json.
        said: what model_args has beside the sizes.
        form: how the release is laid out, a key of ``FORMS``.
        bins: of its features; few where it is made in one size alone, which would take long.
        batches: of which sound, ``USUAL``, ``LONG`` or ``QUICK``.
    """

    toolkit: str
    module: str
    constructor: str
    arguments: Mapping[str, Any]
    name: str
    narrow: Mapping[str, Any]
    model: Any
    said: Mapping[str, Any] = {}
    form: str = "averaged"
    bins: int = 80
    batches: Mapping[str, tuple[int, ...]] = USUAL

    @property
    def sizes(self) -> dict[str, Any]:
        """Of input and embedding, as the constructor calls them."""
        if self.toolkit == "speakerlab":
            return {"feat_dim": self.bins, "embedding_size": DIM}
        return {"acoustic_dim" if self.name.startswith("simam") else "feat_dim": self.bins, "embed_dim": DIM}


SHORT = {"num_blocks": [1, 2, 1, 1]}
TSTP = {"pooling_func": "TSTP"}
ONE, TWO = {**TSTP, "two_emb_layer": False}, {**TSTP, "two_emb_layer": True}
REPVGG = {
    "num_blocks": [1, 2, 1, 2],
    "strides": [1, 1, 2, 2, 2],
    "width_multiplier": [8 / 64, 8 / 128, 16 / 256, 16 / 512],
    **TSTP,
}
REPVGG_SAID = {**TSTP, "deploy": False, "use_se": False}
AUG = {"m_channels": 8, "num_blocks": [1, 1, 2, 1]}
SMALL_RESNET = {"m_channels": 4, "num_blocks": [1, 2, 1, 1]}
NARROW_RESNET = {"width": 4, "blocks": (1, 2, 1, 1)}


def _resnet(model: str, block: str, said: Mapping[str, Any], form: str) -> Family:
    arguments = {**SMALL_RESNET, "block": block, **said}
    return Family("wespeaker", "resnet", "ResNet", arguments, model.lower(), NARROW_RESNET, model, said, form)


def _gemini(said: Mapping[str, Any], form: str) -> Family:
    arguments = {"depths": [1, 1, 1, 1], "dims": [32, 32, 64, 128, 256], **said}
    narrow = {"blocks": (1, 1, 1, 1)}
    name, model = "gemini_df_resnet60", "Gemini_DF_ResNet60"
    return Family("wespeaker", "gemini_dfresnet", "Gemini_DF_ResNet", arguments, name, narrow, model, said, form, 16)


def _ecapa(size: str, form: str, **arguments: Any) -> Family:
    arguments = {"channels": 16, "pooling_func": "ASTP", **arguments}
    name, model = f"ecapa_tdnn_{size.lower()}", f"ECAPA_TDNN_{size}"
    said = {"pooling_func": "ASTP"}
    return Family("wespeaker", "ecapa_tdnn", "ECAPA_TDNN", arguments, name, {"channels": 16}, model, said, form)


def _res2(kind: str, size: str, said: Mapping[str, Any], form: str, **sizes: Any) -> Family:
    """A Res2Net or ERes2Net of WeSpeaker's."""
    arguments = {"m_channels": 4, **SHORT, **sizes, **said}
    narrow = {"width": arguments["m_channels"], "blocks": tuple(arguments["num_blocks"])}
    name, model = f"{kind.lower()}34_{size.lower()}", f"{kind}34_{size}"
    return Family("wespeaker", kind.lower(), kind, arguments, name, narrow, model, said, form)


def _repvgg(size: str, said: Mapping[str, Any], form: str, **arguments: Any) -> Family:
    name, model = f"repvgg_{size.lower()}", f"REPVGG_{size}"
    narrow = NARROW["repvgg_b1g2"]
    return Family(
        "wespeaker", "repvgg", "RepVGG", {**REPVGG, **arguments}, name, narrow, model, {**REPVGG_SAID, **said}, form
    )


def _of_3d_speaker(module: str, constructor: str, name: str, config: Mapping[str, Any], **arguments: Any) -> Family:
    arguments = {**SHORT, "m_channels": 4, **arguments}
    narrow = {"width": arguments["m_channels"], "blocks": tuple(arguments["num_blocks"])}
    if "baseWidth" in arguments:
        narrow["base_width"] = arguments["baseWidth"]
    model = {"sample_rate": 16000, **config}
    return Family("speakerlab", module, constructor, arguments, name, narrow, model, form="modelscope")


FAMILIES = {
    "ResNet": _resnet("ResNet34", "BasicBlock", ONE, "averaged")._replace(batches=LONG),
    "ResNet, two layers, bottlenecks": _resnet("ResNet50", "Bottleneck", TWO, "zip"),
    "Gemini-DF-ResNet": _gemini(ONE, "zip"),
    "Gemini-DF-ResNet, two layers": _gemini(TWO, "run"),
    "ECAPA-TDNN": _ecapa("c512", "zip")._replace(batches=LONG),
    "ECAPA-TDNN, global context": _ecapa("GLOB_c1024", "averaged", global_context_att=True),
    "CAM++": Family(
        "wespeaker", "campplus", "CAMPPlus", TSTP, "campplus", NARROW["campplus"], "CAMPPlus", TSTP, "run", 16
    ),
    "Res2Net": _res2("Res2Net", "Base", ONE, "averaged"),
    "Res2Net, two layers": _res2("Res2Net", "Large", TWO, "run"),
    "ERes2Net base": _res2("ERes2Net", "Base", ONE, "run"),
    "ERes2Net large, two layers": _res2("ERes2Net", "Large", TWO, "averaged", m_channels=8),
    "ERes2Net aug": _res2(
        "ERes2Net", "aug", ONE, "averaged", **AUG, baseWidth=24, scale=3, expansion=4
    )._replace(batches=QUICK),
    "SimAM-ResNet": Family(
        "wespeaker", "samresnet", "SimAM_ResNet34_ASP", {"in_planes": 4}, "simam_resnet34", {"width": 4},
        "SimAM_ResNet34_ASP", {"in_planes": 64, "dropout": 0}, "zip", batches=LONG,
    ),
    "x-vector": Family(
        "wespeaker", "tdnn", "XVEC", {"hid_dim": 16, "stats_dim": 24, **TSTP}, "xvector", NARROW["xvector"], "XVEC",
        TSTP, "averaged", batches=LONG,
    ),
    "RepVGG": _repvgg("TINY_A0", {}, "averaged"),
    "RepVGG, groups": _repvgg("B1g2", {}, "run", override_groups_map={2: 2, 4: 2, 6: 2}),
    "RepVGG, dilated": _repvgg("TINY_RSBB_A0", {}, "zip", block="RepSPK"),
    "RepVGG, excited": _repvgg(
        "D2SE", {"use_se": True}, "averaged", override_groups_map={2: 4, 4: 4, 6: 4}, use_se=True
    ),
    "RepVGG, deployed": _repvgg("A0", {"deploy": True}, "averaged", deploy=True),
    "3D-Speaker: CAM++": Family(
        "speakerlab", "campplus.DTDNN", "CAMPPlus", {"memory_efficient": False}, "campplus", NARROW["campplus"],
        {"sample_rate": 16000, "fbank_dim": 80, "emb_size": DIM}, form="modelscope",
    ),
    "3D-Speaker: ResNet": _of_3d_speaker(
        "resnet.ResNet", "ResNet", "resnet34", {"embed_dim": DIM, "channels": 4}, two_emb_layer=True
    ),
    "3D-Speaker: Res2Net": _of_3d_speaker(
        "res2net.Res2Net", "Res2Net", "res2net34_base", {"embed_dim": DIM, "channels": 4}
    ),
    "3D-Speaker: ERes2Net base": _of_3d_speaker(
        "eres2net.ERes2Net", "ERes2Net", "eres2net34_base", {"embed_dim": DIM, "channels": 4}
    ),
    "3D-Speaker: ERes2Net large, two layers": _of_3d_speaker(
        "eres2net.ERes2Net", "ERes2Net", "eres2net34_large", {"embed_dim": DIM}, m_channels=8, two_emb_layer=True
    ),
    "3D-Speaker: ERes2Net aug": _of_3d_speaker(
        "eres2net.ERes2Net_huge", "ERes2Net", "eres2net34_aug", {"embedding_size": DIM}, **AUG
    )._replace(batches=QUICK),
    "3D-Speaker: ERes2NetV2": _of_3d_speaker(
        "eres2net.ERes2NetV2", "ERes2NetV2", "eres2netv2",
        {"embed_dim": DIM, "baseWidth": 26, "scale": 2, "expansion": 2}, m_channels=8, baseWidth=32,
    ),
    "3D-Speaker: ERes2NetV2, four groups": _of_3d_speaker(
        "eres2net.ERes2NetV2", "ERes2NetV2", "eres2netv2_w24s4ep4",
        {"embed_dim": DIM, "baseWidth": 24, "scale": 4, "expansion": 4},
        m_channels=8, baseWidth=24, scale=4, expansion=4,
    )._replace(batches=QUICK),
}  # fmt: skip
"""Name -> row."""


WHOLE = {
    "CAM++": Family("wespeaker", "campplus", "CAMPPlus", TSTP, "campplus", {}, "CAMPPlus", TSTP, "run"),
    "ResNet34": Family("wespeaker", "resnet", "ResNet34", ONE, "resnet34", {}, "ResNet34", ONE, "zip"),
    "ECAPA_TDNN_GLOB_c512": Family(
        "wespeaker", "ecapa_tdnn", "ECAPA_TDNN_GLOB_c512", {"pooling_func": "ASTP"}, "ecapa_tdnn_glob_c512", {},
        "ECAPA_TDNN_GLOB_c512", {"pooling_func": "ASTP"},
    ),
    "ERes2Net34_Base": Family(
        "wespeaker", "eres2net", "ERes2Net34_Base", ONE, "eres2net34_base", {}, "ERes2Net34_Base", ONE, "run"
    ),
    "3D-Speaker: ResNet34": Family(
        "speakerlab", "resnet.ResNet", "ResNet", {}, "resnet34", {}, {"embed_dim": DIM, "channels": 32},
        form="modelscope",
    ),
}  # fmt: skip
"""Networks as published, by their own constructors."""


def theirs_of(family: Family, wespeaker: Callable[[str], ModuleType]) -> nn.Module:
    """The network of their code, as if it were trained."""
    if family.toolkit == "wespeaker":
        module = wespeaker(f"models.{family.module}")
    else:
        module = importlib.import_module(f"speakerlab.models.{family.module}")
    arguments = dict(family.arguments)
    if "block" in arguments and hasattr(module, arguments["block"]):
        arguments["block"] = getattr(module, arguments["block"])
    torch.manual_seed(7)
    with shallow_campplus(module) if family.narrow == NARROW["campplus"] else nullcontext():
        return randomise(getattr(module, family.constructor)(**family.sizes, **arguments)).eval()


@contextmanager
def narrowed(family: Family) -> Iterator[None]:
    """Within, the published name stands for the small network."""
    row = NETWORKS.rows[family.name]
    small = replace(row, arguments={**row.arguments, **family.narrow})
    with mock.patch.dict(NETWORKS.rows, {family.name: small}):
        yield


def config_of(family: Family, *, old: bool) -> dict[str, Any]:
    """What the training of WeSpeaker dumps as config.yaml; ``old``: as before frontends, with feature_args."""
    fbank = {"num_mel_bins": family.bins, "frame_shift": 10, "frame_length": 25, "dither": 1.0}
    config = {
        "exp_dir": f"exp/{family.model}-emb{DIM}-fbank80-num_frms200-aug0.6-spTrue-saFalse-ArcMargin-SGD-epoch150",
        "gpus": [0, 1], "num_avg": 10, "seed": 42, "num_epochs": 150, "save_epoch_interval": 5,
        "log_batch_interval": 100, "data_type": "shard", "train_data": "data/vox2_dev/shard.list",
        "train_label": "data/vox2_dev/utt2spk",
        "dataloader_args": {"batch_size": 128, "num_workers": 16, "pin_memory": False, "drop_last": True},
        "model": family.model, "model_init": None, "model_args": {**family.sizes, **family.said},
        "projection_args": {
            "project_type": "arc_margin", "scale": 32.0, "easy_margin": False, "embed_dim": DIM,
            "num_class": SPEAKERS, "do_lm": False,
        },
        "margin_update": {"initial_margin": 0.0, "final_margin": 0.2, "increase_type": "exp", "epoch_iter": 17062},
        "loss": "CrossEntropyLoss", "loss_args": {}, "optimizer": "SGD",
        "optimizer_args": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0001},
    }  # fmt: skip
    if old:
        features = {"raw_wav": True, **fbank, "feat_dim": 80, "num_frms": 200, "resample_rate": 16000}
        return {**config, "feature_args": {**features, "cmvn": True, "cmvn_args": {"norm_mean": True}}}
    dataset = {"shuffle": True, "shuffle_args": {"shuffle_size": 2500}, "speed_perturb": True, "num_frms": 200}
    return {**config, "dataset_args": {**dataset, "fbank_args": fbank, "spec_aug": False, "aug_prob": 0.6}}


def _with_head(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**state, "projection.weight": torch.zeros(3 * SPEAKERS, DIM)}


def _averaged(folder: Path, family: Family, network: nn.Module) -> Path:
    """As the hub has it: the mean of ten epochs, in which average_model.py makes counters floating point."""
    exact = network.state_dict()
    state = {name: tensor.float() if tensor.dtype == torch.int64 else tensor for name, tensor in exact.items()}
    torch.save(_with_head(state), folder / "avg_model.pt")
    (folder / "config.yaml").write_text(yaml.dump(config_of(family, old=False)))
    return folder


def _zip(folder: Path, family: Family, network: nn.Module) -> Path:
    """The older zips, unpacked."""
    name = f"voxceleb_{family.name}_LM"
    torch.save(_with_head(network.state_dict()), folder / f"{name}.pt", _use_new_zipfile_serialization=False)
    (folder / f"{name}.yaml").write_text(yaml.dump(config_of(family, old=True)))
    return folder


def _run(folder: Path, family: Family, network: nn.Module) -> Path:
    """exp_dir of a training, whose checkpoint has its state dict under a key."""
    (folder / "models").mkdir()
    torch.save({"state_dict": _with_head(network.state_dict())}, folder / "models" / "avg_model.pt")
    (folder / "config.yaml").write_text(yaml.dump(config_of(family, old=False)))
    return folder


def _modelscope(folder: Path, family: Family, network: nn.Module) -> Path:
    """A snapshot."""
    configuration = {
        "framework": "pytorch",
        "task": "speaker-verification",
        "model": {
            "type": f"{family.name}-sv",
            "model_config": family.model,
            "pretrained_model": "pretrained.ckpt",
            "yesOrno_thr": 0.36,
        },
        "pipeline": {"type": "speaker-verification"},
    }
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=4))
    torch.save(network.state_dict(), folder / "pretrained.ckpt")
    return folder


FORMS = {"averaged": _averaged, "zip": _zip, "run": _run, "modelscope": _modelscope}


def write_release(folder: Path, family: Family, network: nn.Module) -> Path:
    """The release of a network in the form of its row."""
    folder.mkdir(parents=True)
    return FORMS[family.form](folder, family, network)


@cache
def waveforms_of(length: str) -> np.ndarray:
    """(3, samples): noise that becomes louder and softer."""
    samples = LENGTHS[length]
    noise = np.random.default_rng(samples).standard_normal((3, samples))
    return (0.1 * noise * (1.1 + np.sin(np.arange(samples) / 3000.0))).astype(np.float32)


def kaldi_frames(waveform: np.ndarray, toolkit: str, bins: int) -> np.ndarray:
    """(frames, bins): the features of a toolkit's own tools, by kaldi-native-fbank, the mean over time removed.

    Both toolkits call torchaudio.compliance.kaldi.fbank: WeSpeaker with samples times 32768 and a hamming window,
    3D-Speaker with samples in [-1, 1] and torchaudio's window, povey.
    """
    window, scale = {"wespeaker": ("hamming", 32768), "speakerlab": ("povey", 1)}[toolkit]
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = window
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = bins
    options.use_energy = False
    filter_bank = kaldi_native_fbank.OnlineFbank(options)
    filter_bank.accept_waveform(16_000, (waveform * scale).tolist())
    filter_bank.input_finished()
    frames = np.stack([filter_bank.get_frame(index) for index in range(filter_bank.num_frames_ready)])
    return frames - frames.mean(axis=0)


@cache
def features_of(length: str, toolkit: str, bins: int) -> torch.Tensor:
    """(3, frames, bins): those of ``waveforms_of``."""
    return torch.from_numpy(np.stack([kaldi_frames(waveform, toolkit, bins) for waveform in waveforms_of(length)]))


def embeddings(network: nn.Module, frames: torch.Tensor) -> torch.Tensor:
    """(batch, values) of their network, which may return more than these."""
    with torch.no_grad():
        made = network(frames.clone())
    return made[-1] if isinstance(made, tuple) else made


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-5 of the largest value."""
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
