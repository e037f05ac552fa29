"""docs/from_wespeaker.md: what stands on our side is there, and the keys of WeSpeaker's recipe are all on theirs."""

from __future__ import annotations

import re
import shlex

import pytest
from paths import ROOT

from svtoolkit import composition
from svtoolkit.composition import Catalogue
from svtoolkit.config import COMMANDS

PAGE = (ROOT / "docs" / "from_wespeaker.md").read_text(encoding="utf-8")

RESNET_YAML = """
    exp_dir gpus num_avg enable_amp seed num_epochs save_epoch_interval log_batch_interval batch_size
    num_workers sample_num_per_epoch shuffle_size min_num_frames resample_rate speed_perturb num_frms aug_prob
    num_mel_bins dither spec_aug num_t_mask num_f_mask max_t max_f prob model model_init feat_dim embed_dim
    pooling_func two_emb_layer project_type scale initial_margin final_margin increase_start_epoch
    fix_start_epoch increase_type optimizer momentum nesterov weight_decay initial_lr final_lr warm_up_epoch
    warm_from_zero do_lm
""".split()
"""Keys of examples/voxceleb/v2/conf/resnet.yaml and resnet_lm.yaml that set something."""


def words(column: int) -> list[str]:
    """What stands in backticks in a column of the table of keys."""
    section = PAGE.split("## Keys of a recipe\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row[column])]


def commands() -> list[list[str]]:
    joined = re.sub(r"\\\n\s*", " ", PAGE)
    return [shlex.split(line)[1:] for line in joined.splitlines() if line.startswith("    svt ")]


def test_every_key_of_their_recipe_is_there():
    there = " ".join(words(0))
    assert [key for key in RESNET_YAML if not re.search(rf"(?<![a-z_]){key}(?![a-z_])", there)] == []


def test_our_keys_and_their_values_are_those_of_svt_train():
    catalogue = Catalogue("train")
    keys = catalogue.key_types()
    for word in (part for found in words(1) for part in found.split() if not found.startswith("svt ")):
        key, _, value = word.partition("=")
        if key in ("num", "bf16", "CUDA_VISIBLE_DEVICES", "average"):
            continue
        if key in catalogue.options:
            assert value in catalogue.options[key], word
        else:
            assert key in keys, word


@pytest.mark.parametrize("line", [pytest.param(line, id=" ".join(line)[:60]) for line in commands()])
def test_commands_compose(line):
    name, *others = line
    positional = COMMANDS[name].positional
    plain = [word for word in others if "=" not in word]
    given = [f"{key}={word}" for key, word in zip(positional, plain, strict=False)]
    node = composition.load(name, [*given, *(word for word in others if "=" in word and "init_from" not in word)])
    assert node is not None
