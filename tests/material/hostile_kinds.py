"""What of each kind of release can be said, and what of it means harm: settings, by hand.

A new kind adds a row to ``RELEASES``, of a sample in ``small_releases``.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import hostile_files
import torch
from hostile_files import Calls
from small_releases import SAMPLES, Files, dump_yaml, nemo_tar

from svtoolkit.system.plain_data import Tagged

Poison = Iterator[tuple[str, Files, bool]]
"""Name, files, and whether they have to be refused; what is not looked at may be read."""


class Release(NamedTuple):
    """A row: a kind of release.

    Attributes:
        weights: its file of weights.
        text: its file of settings; None: they are in the former.
        keys: paths of keys that its reader looks at.
        poison: releases whose settings mean harm.
    """

    weights: str
    text: str | None
    keys: str
    poison: Callable[[str], Poison]


def poisoned_yaml(text: bytes) -> dict[str, bytes]:
    """A good text with something in front of it or behind it, or another in its place."""
    return {
        "a name of Python": text + b"more: !!python/name:os.system\n",
        "a call of Python": text + b"more: !!python/object/apply:os.system ['touch HARM']\n",
        "an object of Python": text + b"more: !!python/object/new:subprocess.Popen [['touch', 'HARM']]\n",
        "a module of Python": text + b"more: !!python/module:antigravity\n",
        "a tag of another": text + b"more: !apply:os.system ['touch HARM']\n",
        "aliases": text + b"a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "an alias of itself": text + b"a: &a [*a]\n",
        "a merge": text + b"a: &a {b: 1}\nc: {<<: *a}\n",
        "depth": text + b"more: " + b"[" * 800 + b"]" * 800,
        "mappings in depth": text + b"more: " + b"{a: " * 400 + b"}" * 400,
        "two documents": text + b"---\n" + text,
        "length": text + b"# " + b"x" * (2 << 20),
        "not closed": text + b"more: [1\n",
        "a tab": text + b"\tmore: 1\n",
        "a null character": text + b"more: \x00\n",
        "an escape": text + b"more: \x1b[2J\n",
        "bytes": text + b"more: \xff\xfe\n",
        "a date that is none": text + b"more: 2020-99-99\n",
        "a key of a list": text + b"? [1, 2]\n: 3\n",
        "a key of a mapping": text + b"? {a: 1}\n: 3\n",
        "UTF-16": text.decode().encode("utf-16"),
        "nothing": b"",
        "a list": b"- 1\n- 2\n",
        "a word": b"ResNet34\n",
        "HTML": b"<!DOCTYPE html><html>404: not found</html>",
        "a program": b"#!/bin/sh\ntouch HARM\n",
    }


def poisoned_json(text: bytes) -> dict[str, bytes]:
    inside = text.rstrip()[:-1]
    return {
        "depth": inside + b', "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "mappings in depth": inside + b', "more": ' + b'{"a":' * 3000 + b"1" + b"}" * 3001,
        "a number of digits": inside + b', "more": ' + b"1" * 50_000 + b"}",
        "length": inside + b', "more": "' + b"x" * (2 << 20) + b'"}',
        "not closed": inside,
        "a comma more": inside + b",}",
        "comments": b"// touch HARM\n" + text,
        "a null character": inside + b', "more": "\x00"}',
        "bytes": inside + b', "more": "\xff"}',
        "UTF-16": text.decode().encode("utf-16"),
        "a mark of order": b"\xef\xbb\xbf" + text,
        "nothing": b"",
        "a list": b"[1, 2]",
        "a word": b'"campplus"',
        "a program": b"__import__('os').system('touch HARM')",
        "HTML": b"<!DOCTYPE html><html>404: not found</html>",
    }


WORDS = ("a name of Python", "a call of Python", "an object of Python", "a module of Python", "a tag of another")
"""Poison of YAML that is words for who reads tags as words."""

CALLS = {
    "a call": Calls(os.system, "touch HARM"),
    "a process": Calls(subprocess.Popen, ["touch", "HARM"]),
    "an evaluation": Calls(eval, "open('HARM', 'w')"),
    "a file that is opened": Calls(open, "HARM", "w"),
    "an attribute": Calls(getattr, "text", "upper"),
}


def changed(content: Any, key: str, value: Any) -> Any:
    """The same with another value at a path of keys."""
    if isinstance(content, Tagged):
        return Tagged(content.tag, changed(content.value, key, value))
    head, _, rest = key.partition("/")
    if isinstance(content, list):
        at = int(head)
        return [*content[:at], changed(content[at], rest, value) if rest else value, *content[at + 1 :]]
    return {**content, head: changed(content.get(head, {}), rest, value) if rest else value}


def _whole_texts(kind: str, poisons: Mapping[str, bytes], allowed: tuple[str, ...] = ()) -> Poison:
    files, text = SAMPLES[kind].files(), RELEASES[kind].text
    assert text is not None
    for name, poison in poisons.items():
        yield f"{text}: {name}", {**files, text: poison}, name not in allowed


def _values(kind: str, values: Mapping[str, Mapping[str, Any]], *, refused: bool = True) -> Poison:
    """Path of keys -> values by their names."""
    for key, named in values.items():
        for name, value in named.items():
            content = changed(SAMPLES[kind].content, key, value)
            yield f"{key} is {name}", SAMPLES[kind].files(content), refused


def _yaml(kind: str) -> Poison:
    files = SAMPLES[kind].files()
    return _whole_texts(kind, poisoned_yaml(files[str(RELEASES[kind].text)]))


def _json(kind: str) -> Poison:
    files = SAMPLES[kind].files()
    return _whole_texts(kind, poisoned_json(files[str(RELEASES[kind].text)]))


def _speechbrain(kind: str) -> Poison:
    yield from _whole_texts(
        kind, poisoned_yaml(dump_yaml(SAMPLES[kind].content)), (*WORDS, "aliases", "an alias of itself")
    )
    harm = {
        "applied": Tagged("!apply:os.system", ["touch HARM"]),
        "made": Tagged("!new:os.system", {"command": "touch HARM"}),
        "a process": Tagged("!new:subprocess.Popen", {"args": ["touch", "HARM"]}),
        "a name": Tagged("!name:os.system", {"command": "touch HARM"}),
        "a module": Tagged("!module:antigravity", ""),
        "included": Tagged("!include:/etc/passwd", ""),
        "Python's": Tagged("tag:yaml.org,2002:python/object/apply:os.system", ["touch HARM"]),
        "an attribute": Tagged("!ref", "<embedding_model.__class__.__init__>"),
        "computed": Tagged("!ref", "<n_mels> * 9 ** 9 ** 9"),
        "code": Tagged("!ref", "<__import__('os').system('touch HARM')>"),
        "a copy of nothing": Tagged("!copy", "<nothing>"),
    }
    arguments = ("activation", "tdnn_channels", "lin_neurons")
    keys = ("embedding_model", "compute_features", "mean_var_norm", *(f"embedding_model/{name}" for name in arguments))
    yield from _values(kind, dict.fromkeys((*keys, "compute_features/n_mels", "sample_rate"), harm))
    yield from _values(
        kind,
        {
            "embedding_model": {
                "itself": Tagged("!ref", "<embedding_model>"),
                "the other's": Tagged("!ref", "<compute_features>"),
                "a class of a longer name": Tagged("!new:speechbrain.lobes.models.Xvector.Xvector.__init__", {}),
                "a class with arguments in a list": Tagged("!new:speechbrain.lobes.models.Xvector.Xvector", [24]),
            },
            "embedding_model/tdnn_channels": {"long": [2] * 10_000, "large": [2, 2, 2, 2, 1 << 40]},
            "embedding_model/device": {"of others": Tagged("!apply:os.system", ["touch HARM"])},
        }
        | {"embedding_model/os": {"an argument": Tagged("!apply:os.system", ["touch HARM"])}},
        refused=False,
    )
    beside = {
        "__set_seed": {"applied": harm["applied"]},
        "pretrainer": {"made": Tagged("!new:speechbrain.utils.parameter_transfer.Pretrainer",
                                      {"paths": {"embedding_model": "https://127.0.0.1/HARM"}})},
        "pretrained_path": {"a path": "../../../../etc", "made": harm["made"], "an address": "http://127.0.0.1/HARM"},
    }  # fmt: skip
    yield from _values(kind, beside, refused=False)


def _pyannote(kind: str) -> Poison:
    keys = ("hyper_parameters/sample_rate", "hyper_parameters/task", "architecture/class", "hyper_parameters")
    yield from _values(kind, dict.fromkeys((*keys, "architecture"), CALLS))
    classes = ("PyanNet", "system", "__class__", "os.system", "WeSpeakerResNet34\n", ["WeSpeakerResNet34"])
    yield from _values(kind, {"architecture/class": {str(name): name for name in classes}})
    modules = ("os", "../../HARM", "__import__('os').system('touch HARM')")
    yield from _values(kind, {"architecture/module": {name: name for name in modules}}, refused=False)
    files = SAMPLES[kind].files()
    for name, text in list(poisoned_yaml(files["config.yaml"]).items())[:3]:  # which is not read
        yield f"config.yaml: {name}", {**files, "config.yaml": text}, False


def _nemo(kind: str) -> Poison:
    sample = SAMPLES[kind]
    good = dict(hostile_files.members_of_tar(sample.files()["speakernet.nemo"]))
    settings, weights = good["./model_config.yaml"], good["./model_weights.ckpt"]

    def of(content: bytes) -> Files:
        return {"speakernet.nemo": content}

    for name, text in poisoned_yaml(settings).items():
        if name in WORDS[1:]:
            continue
        yield f"model_config.yaml: {name}", of(nemo_tar(text, weights)), name not in WORDS
    targets = {"a call": "os.system", "a path": "../../HARM"}
    yield from _values(kind, {f"{part}/_target_": targets for part in ("preprocessor", "encoder", "decoder")})
    yield from _values(kind, {"encoder/jasper/0/_target_": targets, "decoder/_args_": {"a list": ["touch HARM"]}})
    call = {"_target_": "os.system", "command": "touch HARM"}
    beside = {"target": {"a call": "os.system"}, "train_ds": {"a call": call}}
    beside |= {"encoder/_target_": {"another module's": "os.ConvASREncoder"}}
    yield from _values(kind, beside, refused=False)
    many = [sample.content["encoder"]["jasper"][0]] * 5000
    sizes = {"encoder/jasper/0/repeat": {"large": 1_000_000}, "encoder/jasper": {"long": many}}
    sizes |= {"encoder/jasper/0/filters": {"large": 1_000_000}, "decoder/emb_sizes": {"large": 1_000_000}}
    yield from _values(kind, sizes)
    for name in ("../HARM", "/tmp/HARM"):
        members = [("./model_config.yaml", settings), (name, b"touch HARM"), ("./model_weights.ckpt", weights)]
        yield f"a member {name}", of(hostile_files.tar_of(*members)), False
    for name, place, target in (
        ("a symbolic link", tarfile.SYMTYPE, "/etc/passwd"), ("a hard link", tarfile.LNKTYPE, "/etc/passwd"),
        ("a link within", tarfile.SYMTYPE, "model_config.yaml"), ("a pipe", tarfile.FIFOTYPE, ""),
        ("a device", tarfile.CHRTYPE, ""), ("a folder", tarfile.DIRTYPE, ""), ("sparse", tarfile.GNUTYPE_SPARSE, ""),
    ):  # fmt: skip
        for which in ("config", "weights"):

            def change(info: tarfile.TarInfo, place: bytes = place, target: str = target, which: str = which) -> None:
                if which in info.name:
                    info.type, info.linkname, info.size = place, target, 0

            yield f"model_{which} is {name}", of(nemo_tar(settings, weights, change=change)), True
    for name, table in {"NaN": float("nan"), "infinity": float("inf"), "others": 0.5}.items():
        more = {"preprocessor.featurizer.window": torch.full((320,), table)}
        yield f"a window of {name}", sample.files(**more), True


def _resemblyzer(kind: str) -> Poison:
    yield from _values(kind, dict.fromkeys(("step", "optimizer_state", "__class__"), CALLS))


def _redimnet(kind: str) -> Poison:
    code = ("__import__('os').system('touch HARM')", "exec(\"open('HARM', 'w')\")", "nn.ReLU(", "9**9**9", "a\nb")
    words = {text: text for text in code}
    two = dict(list(words.items())[:2])
    yield from _values(kind, dict.fromkeys(("head_activation",), words), refused=False)
    keys = ("block_1d_type", "block_2d_type", "pooling_func", "feat_type", "F", "C", "stages_setup", "activation")
    yield from _values(kind, dict.fromkeys(keys, two))
    yield from _values(kind, dict.fromkeys(("F", "head_activation", "spec_params", "more"), CALLS))
    sizes = {"F": 1 << 19, "C": 1 << 19, "embed_dim": 1 << 19, "out_channels": 1 << 19, "hop_length": 1 << 19}
    yield from _values(kind, {key: {"large": value} for key, value in sizes.items()})
    stage = [1, 1, 1, [[3, 3]], None]
    stages = {
        "many": [stage] * 5000, "of many blocks": [[1, 1 << 19, 1, [[3, 3]], None]], "wide": [[1, 1, 1 << 40, [], 1]],
        "of large kernels": [[1, 1, 1, [[1 << 30, 1]], None]], "of many kernels": [[1, 1, 1, [[3, 3]] * 5000, None]],
        "without kernels": [[1, 1, 1, [], None]], "none": [], "flat": [1, 2], "of a stride of 0": [[0, *stage[1:]]],
    }  # fmt: skip
    yield from _values(kind, {"stages_setup": stages})


def _transformers(kind: str) -> Poison:
    files = SAMPLES[kind].files()
    for text in ("config", "preprocessor_config"):
        for name, poison in poisoned_json(files[f"{text}.json"]).items():
            yield f"{text}.json: {name}", {**files, f"{text}.json": poison}, True
    code = {"mine.py": b"import os\nos.system('touch HARM')\nopen('HARM', 'w')\nclass Mine: pass\n"}
    remote = {
        "config/auto_map": {"AutoModelForXVector": "mine.Mine", "AutoConfig": "mine.Mine", "AutoModel": "mine.Mine"},
        "config/trust_remote_code": True,
        "config/custom_pipelines": {"x": {"impl": "mine.Mine", "pt": ["AutoModel"]}},
        "config/_attn_implementation": "somebody/kernel",
        "config/attn_implementation": "somebody/kernel:attention",
        "config/_name_or_path": "../../../etc/passwd",
        "config/base_model_name_or_path": "http://127.0.0.1/HARM",
        "config/quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "config/torch_dtype": "os.system",
        "config/dtype": "__class__",
        "config/adapter_attn_dim": "os.system",
        "config/id2label": {"0": "os.system"},
        "config/transformers_version": "../HARM",
        "preprocessor/auto_map": {"AutoFeatureExtractor": "mine.Mine"},
        "preprocessor/processor_class": "mine.Mine",
        "preprocessor/trust_remote_code": True,
    }
    for key, value in remote.items():
        content = changed(SAMPLES[kind].content, key, value)
        yield f"{key} is {value}", {**SAMPLES[kind].files(content), **code}, False
    architectures = (
        "BertModel", "mine.Mine", "os.system", "__class__", "../mine", "WavLMForXVector\n", "PreTrainedModel",
        "AutoModelForAudioXVector", "Wav2Vec2ForXVector", "pipeline",
    )  # fmt: skip
    named = {name: [name] for name in architectures} | {"two": ["WavLMForXVector", "mine.Mine"], "a text": "mine.Mine"}
    yield from _values(kind, {"config/architectures": named})
    activations = {"code": "__import__('os').system('touch HARM')", "a module": "os.system", "a dunder": "__class__"}
    yield from _values(kind, dict.fromkeys(("config/hidden_act", "config/feat_extract_activation"), activations))
    large, long = {"large": 1_000_000}, {"long": [4] * 64, "large": [1_000_000] * 2, "of words": ["os"] * 2}
    sizes = ("hidden_size", "num_hidden_layers", "intermediate_size", "xvector_output_dim", "num_conv_pos_embeddings")
    yield from _values(kind, {f"config/{key}": large for key in sizes})
    yield from _values(kind, {f"config/{key}": long for key in ("conv_dim", "conv_kernel", "tdnn_dim")})
    strides = ("conv_stride", "tdnn_kernel", "tdnn_dilation")
    yield from _values(kind, {f"config/{key}": long for key in strides}, refused=False)
    yield from _values(kind, {"preprocessor/feature_extractor_type": activations})
    bin_beside = {name: content for name, content in files.items() if name != "model.safetensors"}
    for name, call in CALLS.items():
        weights = hostile_files.torch_file({"state_dict": {}, "more": call})
        yield f"pytorch_model.bin: {name}", {**bin_beside, "pytorch_model.bin": weights}, True


def _onnx(kind: str) -> Poison:
    import hostile_graphs

    yield from hostile_graphs.poisoned(SAMPLES[kind].content)


_ALL = {
    "wespeaker": Release(
        "avg_model.pt", "config.yaml",
        "model model_args model_args/feat_dim model_args/embed_dim model_args/pooling_func dataset_args "
        "dataset_args/frontend dataset_args/fbank_args dataset_args/fbank_args/num_mel_bins "
        "dataset_args/fbank_args/frame_length dataset_args/fbank_args/frame_shift dataset_args/resample_rate "
        "dataset_args/cmvn dataset_args/cmvn_args num_epochs",
        _yaml,
    ),
    "3d-speaker": Release(
        "pretrained.ckpt", "configuration.json",
        "task model model/pretrained_model model/yesOrno_thr model/model_config model/model_config/fbank_dim",
        _json,
    ),
    "ours": Release(
        "model.safetensors", "model.yaml",
        "format model model/name model/num_bins model/embedding_dim features features/backend features/window "
        "features/num_bins features/frame_length_ms features/frame_shift_ms features/sample_rate features/low_freq "
        "training verification verification/threshold verification/p_fa weights_sha256",
        _yaml,
    ),
    "speechbrain": Release(
        "embedding_model.ckpt", "hyperparams.yaml",
        "embedding_model embedding_model/in_channels embedding_model/lin_neurons embedding_model/tdnn_channels "
        "embedding_model/activation compute_features compute_features/n_mels mean_var_norm mean_var_norm/norm_type "
        "n_mels sample_rate pretrained_path",
        _speechbrain,
    ),
    "pyannote": Release(
        "pytorch_model.bin", None,
        "hyper_parameters hyper_parameters/sample_rate hyper_parameters/num_mel_bins hyper_parameters/frame_length "
        "hyper_parameters/frame_shift hyper_parameters/window_type hyper_parameters/dither architecture "
        "architecture/class",
        _pyannote,
    ),
    "NeMo": Release(
        "speakernet.nemo", None,
        "preprocessor preprocessor/features preprocessor/window_size preprocessor/n_fft preprocessor/normalize encoder "
        "encoder/feat_in encoder/jasper encoder/jasper/0 encoder/jasper/0/kernel encoder/jasper/0/repeat "
        "encoder/jasper/0/se encoder/jasper/0/filters encoder/conv_mask decoder decoder/emb_sizes decoder/pool_mode",
        _nemo,
    ),
    "resemblyzer": Release("pretrained.pt", None, "step model", _resemblyzer),
    "redimnet": Release(
        "b0-vox2.pt", None,
        "F C stages_setup stages_setup/0 group_divisor embed_dim block_1d_type feat_type spec_params "
        "spec_params/norm_signal hop_length head_activation",
        _redimnet,
    ),
    "transformers": Release(
        "model.safetensors", "config.json",
        "config/architectures config/model_type config/hidden_size config/num_hidden_layers config/conv_dim "
        "config/conv_kernel config/conv_stride config/tdnn_kernel config/xvector_output_dim config/add_adapter "
        "config/hidden_act config/feat_extract_norm config/num_attention_heads preprocessor/sampling_rate "
        "preprocessor/do_normalize preprocessor/feature_extractor_type",
        _transformers,
    ),
    "onnx": Release("model.onnx", None, "framework sample_rate output_dim feat_dim normalize_samples language", _onnx),
}  # fmt: skip
RELEASES = {kind: row for kind, row in _ALL.items() if kind in SAMPLES}
"""Kind -> row."""
