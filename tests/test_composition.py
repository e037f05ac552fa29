"""Overrides of the command line: what they compose to, and the sentence that a mistaken one gets."""

from __future__ import annotations

import random

import pytest
from compositions import NASTY, load
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from svtoolkit import composition
from svtoolkit.cli import parse_words
from svtoolkit.config import AdamWConfig, EmbedConfig, SGDConfig, TrainConfig


def test_the_result_is_the_schema_s_dataclass_with_what_was_given():
    config = load("trainer.epochs=3", "loss.margin=0.3", "data.speeds=[1.0]", "trainer.micro_batch=8", "seed=7")
    assert isinstance(config, TrainConfig)
    assert (config.exp_dir, config.data.train, config.seed) == ("exp/x", "data/train", 7)
    assert (config.trainer.epochs, config.trainer.micro_batch, config.loss.margin) == (3, 8, 0.3)
    assert config.data.speeds == [1.0]
    assert isinstance(config.optim, SGDConfig)


@pytest.mark.parametrize(
    ("override", "value"),
    [("trainer.deterministic=false", False), ("trainer.deterministic=yes", True), ("trainer.deterministic=0", False)],
)
def test_booleans(override, value):
    assert load(override).trainer.deterministic is value


def test_numbers_in_any_notation():
    assert load("schedule.end_factor=1e-5").schedule.end_factor == 1e-5
    assert load("loss.margin=1").loss.margin == 1.0
    assert load("trainer.micro_batch=null").trainer.micro_batch is None
    assert load("data.speeds=[]").data.speeds == []
    assert load("data.speeds=[1, 0.9]").data.speeds == [1.0, 0.9]


def test_a_group_brings_the_keys_of_its_option():
    config = load("optim=adamw", "optim.beta1=0.8")
    assert config.optim == AdamWConfig(beta1=0.8)


def test_the_last_of_two_equal_keys_wins():
    assert load("seed=1", "seed=2").seed == 2
    assert load("model=resnet50", "model=resnet18").model.name == "resnet18"


def test_order_of_group_and_key_does_not_matter():
    assert load("optim.lr=0.3", "optim=adamw") == load("optim=adamw", "optim.lr=0.3")
    assert load("optim.lr=0.3", "experiment=mini").optim.lr == 0.3


@pytest.mark.parametrize(
    "text",
    ["2024_01", "007", "1e3", "true", "a,b", "a b", "f(x)", "a{b", "[x]", "'x", "a'b'", "{a: 1}", "a=b", "#1", "x\\"],
)
def test_the_value_of_a_text_key_is_taken_as_it_stands(text):
    assert load(f"exp_dir={text}").exp_dir == text


def test_quotes_around_a_text_value_are_taken_off():
    assert load("exp_dir='a b'").exp_dir == "a b"
    assert load('exp_dir="null"').exp_dir == "null"


def test_interpolation_is_resolved_in_an_override():
    assert load("data.root=${exp_dir}/audio").data.root == "exp/x/audio"


def test_two_compositions_do_not_meet():
    assert load("optim=adamw").optim.name == "adamw"
    assert load().optim.name == "sgd"
    assert composition.load("embed", ["model=m", "data=d", "out=o"]) == EmbedConfig(model="m", data="d", out="o")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
VALUES = st.lists((TEXT | NASTY).filter(lambda value: value != "???"), min_size=6, max_size=6)
TEXT_KEYS = ("model", "data", "out", "root", "device", "precision")
KNOWN = [
    ["it's", "\\'", "\\\\'\\", "${exp_dir}", "\\${exp_dir}", "\\\\${x}\\\\"],
    ["$${x}", "${", "null", "a,b=c #d", " lead and trail ", "'quoted'"],
    ['"quoted"', "[a]", "{a: 1}", "--x", "true", "1_000"],
]


def composed_values(overrides: list[str]) -> list[str]:
    config = composition.load("embed", overrides)
    return [getattr(config, key) for key in TEXT_KEYS]


@settings(max_examples=25, deadline=None)
@given(values=VALUES)
@example(values=KNOWN[0])
@example(values=KNOWN[1])
@example(values=KNOWN[2])
def test_quote_survives_hydra_and_omegaconf(values):
    assert composed_values([f"{k}={composition.quote(v)}" for k, v in zip(TEXT_KEYS, values, strict=True)]) == values


@settings(max_examples=15, deadline=None)
@given(values=VALUES)
@example(values=KNOWN[0])
@example(values=KNOWN[2])
def test_an_option_word_is_literal_too(values):
    values = [value.replace("null", "nul") for value in values]  # the one word that has a meaning: none
    overrides, _ = parse_words("embed", [f"--{key}={value}" for key, value in zip(TEXT_KEYS, values, strict=True)])
    assert composed_values(overrides) == values


@settings(max_examples=15, deadline=None)
@given(value=(TEXT | NASTY).filter(lambda value: not value.startswith("[")))
def test_a_single_value_of_a_list_is_literal(value):
    overrides, _ = parse_words("prepare", [f"--source={value}", "corpus=folders", "out=o"])
    assert composition.load("prepare", overrides).source == [value]


def test_null_is_none_as_an_option_word():
    overrides, _ = parse_words("embed", ["--root", "null", "--model", "m", "--data=d", "--out=o"])
    assert composition.load("embed", overrides).root is None


def test_cfg_shows_what_composes_back_even_if_it_needs_quotes():
    from omegaconf import OmegaConf

    value = "a ${b} 'c' # \\${d}"
    composed = composition.compose("embed", [f"model={composition.quote(value)}"])
    read_back = OmegaConf.merge(OmegaConf.structured(EmbedConfig), OmegaConf.create(composition.to_yaml(composed)))
    assert read_back.model == value


def test_plain_text_in_quotes_is_what_hydras_grammar_makes_of_it() -> None:
    letters = "Aa0 _./:,=+@%~()[]{}-"
    rng = random.Random(0)
    drawn = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(30)]
    parser = OverridesParser.create()
    for text in ["", "null", "true", "1e3", " a ", "a,b", "[a]", "{a:b}", "range(1,2)", "a=b", "choice(a,b)", *drawn]:
        literal = composition.LITERAL.fullmatch(f"'{text}'")
        assert literal is not None
        assert literal[1] == parser.parse_override(f"scores='{text}'").value()
    for text in ["'${a}'", "'a\\'b'", "'a''b'", "'a\\'", '"a"', "a", "'a", "'a\n'"]:
        assert composition.LITERAL.fullmatch(text) is None
