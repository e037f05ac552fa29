"""Overrides of the command line: what they compose to, and the sentence that a mistaken one gets."""

from __future__ import annotations

import contextlib
import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from svtoolkit import composition
from svtoolkit.cli import main, parse_words
from svtoolkit.composition import Catalogue
from svtoolkit.config import AdamWConfig, EmbedConfig, ModelConfig, ResNetConfig, SGDConfig, TrainConfig
from svtoolkit.errors import UserError

GIVEN = ["exp_dir=exp/x", "data.train=data/train"]


def load(*overrides: str, command: str = "train"):
    return composition.load(command, [*(GIVEN if command == "train" else []), *overrides])


def refusal(*overrides: str, command: str = "train") -> str:
    """The message that overrides are refused with: one line that begins with the command."""
    with pytest.raises(UserError) as caught:
        load(*overrides, command=command)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"svt {command}: ")
    return message.removeprefix(f"svt {command}: ")


# ---- what is composed ----


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


# ---- quote ----

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
NASTY = st.text(alphabet="'\"\\${}()[],=:# \t\n%~+aé日", min_size=1)
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


# ---- mistakes ----


def test_the_learning_rate_mistyped_fails_in_one_line_that_suggests_it(capsys):
    assert main(["train", "model=resnet34", "optim.lrr=0.1"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: svt train: there is no key 'optim.lrr'; did you mean 'optim.lr'?\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("epochs=3", "trainer.epochs"),
        ("trainer.epoch=3", "trainer.epochs"),
        ("batchsize=3", "trainer.batch_size"),
        ("lr=0.1", "optim.lr"),
        ("trainer.speeds=[1.0]", "data.speeds"),
        ("optimizer=sgd", "optim"),
        ("exp-dir=x", "exp_dir"),
        ("modle=resnet18", "model"),
        ("seed.x=1", "seed"),
        ("marginschedule=linear", "margin_schedule"),
    ],
)
def test_an_unknown_key_gets_the_nearest(override, nearest):
    assert refusal(override) == f"there is no key {override.partition('=')[0]!r}; did you mean {nearest!r}?"


@pytest.mark.parametrize("override", ["qqqq=1", "hydra.searchpath=true", "hydra/launcher=basic", "xyzzy.plugh=1"])
def test_a_key_near_to_none(override):
    key = override.partition("=")[0]
    assert refusal(override) == f"there is no key {key!r}; `svt train --help` lists the keys"


def test_a_key_of_the_schema_of_another_command():
    assert refusal("trainer.epochs=3", command="average").startswith("there is no key 'trainer.epochs'")


@pytest.mark.parametrize("override", ["train_schema=x", "defaults=[]", "data@here=crops200"])
def test_names_that_only_hydra_knows_are_no_keys(override):
    assert refusal(override).startswith(f"there is no key {override.partition('=')[0]!r}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.epochs=x", "trainer.epochs is 'x', expected a whole number"),
        ("trainer.epochs=1.5", "trainer.epochs is '1.5', expected a whole number"),
        ("trainer.epochs='x'", "trainer.epochs is 'x', expected a whole number"),
        ("trainer.epochs=null", "trainer.epochs is 'null', expected a whole number"),
        ("trainer.epochs=1,2", "trainer.epochs is '1,2', expected a whole number"),
        ("trainer.epochs=[1", "trainer.epochs is '[1', expected a whole number"),
        ("trainer.epochs={a: 1}", "trainer.epochs is '{a: 1}', expected a whole number"),
        ("trainer.micro_batch=x", "trainer.micro_batch is 'x', expected a whole number or null"),
        ("loss.margin=wide", "loss.margin is 'wide', expected a number"),
        ("trainer.gradient_clip=[1]", "trainer.gradient_clip is '[1]', expected a number or null"),
        ("trainer.deterministic=maybe", "trainer.deterministic is 'maybe', expected true or false"),
        ("data.speeds=1.0", "data.speeds is '1.0', expected a list of numbers such as [1.0,0.9]"),
        ("data.speeds=[fast]", "data.speeds is '[fast]', expected a list of numbers such as [1.0,0.9]"),
        ("data.speeds=null", "data.speeds is 'null', expected a list of numbers such as [1.0,0.9]"),
        ("exp_dir=null", "exp_dir is 'null', expected text; `--exp_dir VALUE` takes any text literally"),
        ("exp_dir=${", "exp_dir is '${', expected text; `--exp_dir VALUE` takes any text literally"),
    ],
)
def test_a_value_of_the_wrong_type(override, message):
    assert refusal("model=resnet18", override, "seed=3") == message


def test_a_list_of_text():
    overrides = ["corpus=kaldi", "out=o", "source=one"]
    assert refusal(*overrides, command="prepare") == "source is 'one', expected a list such as [a,b]"
    assert load("corpus=kaldi", "out=o", "source=[one,'a b']", command="prepare").source == ["one", "a b"]


EXPERIMENTS = ", ".join(Catalogue("train").options["experiment"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("features=fbank81", "features has no option 'fbank81'; did you mean 'fbank80'? (all: fbank80)"),
        ("trainer=defautl", "trainer has no option 'defautl'; did you mean 'default'? (all: default)"),
        ("optim=sdg", "optim has no option 'sdg'; did you mean 'sgd'? (all: adamw, adamw_8bit, sgd, sgd_8bit)"),
        ("optim=lion", "optim has no option 'lion'; expected one of adamw, adamw_8bit, sgd, sgd_8bit, or nothing"),
        ("experiment=min", f"experiment has no option 'min'; did you mean 'mini'? (all: {EXPERIMENTS})"),
        ("experiment=null", f"experiment has no option 'null'; expected one of {EXPERIMENTS}, or nothing"),
        ("trainer=null", "trainer has no option 'null'; expected one of default, or nothing"),
        ("trainer={epochs: 3}", "trainer has no option '{epochs: 3}'; expected one of default, or nothing"),
        ("loss='aaam'", "loss has no option 'aaam'; did you mean 'aam'? (all: aam, am, softmax)"),
    ],
)
def test_an_unknown_option(override, message):
    assert refusal(override).startswith(message)


@pytest.mark.parametrize("word", ["+seed=3", "++seed=3", "~seed", "~seed=3", "+experiment=mini", "~model", "+a.b=1"])
def test_nothing_is_added_or_removed(word):
    message = refusal(word)
    key, _, value = word.lstrip("+~").partition("=")
    assert message == (
        f"found {word!r}, but keys and groups can be neither added nor removed; set one with {key}={value or 'value'} "
        "(`svt train --cfg job` shows what there is)"
    )


@pytest.mark.parametrize("word", ["seed", "=3", "=", "model"])
def test_what_is_no_key_and_value(word):
    assert refusal(word) == f"found {word!r}, expected key=value; see `svt train --help`"


@pytest.mark.parametrize("value", ["", "''", '""'])
def test_an_empty_value(value):
    assert refusal(f"trainer.device={value}") == (
        "trainer.device= has no value, expected text; if it came from a shell variable, that is empty"
    )
    options = "adamw, adamw_8bit, sgd, sgd_8bit"
    assert refusal(f"optim={value}").startswith(f"optim= has no value, expected one of {options}; if")
    assert refusal(f"seed={value}").startswith("seed= has no value, expected a whole number; if")


def test_a_key_of_another_optimizer_names_the_one_it_belongs_to():
    assert refusal("optim=adamw", "optim.momentum=0.9") == (
        "optim=adamw has no key 'optim.momentum', which belongs to optim=sgd, optim=sgd_8bit; "
        "its keys: name, lr, weight_decay, beta1, beta2, eps"
    )
    assert refusal("optim.beta1=0.9").startswith("optim=sgd has no key 'optim.beta1', which belongs to optim=adamw, ")
    assert refusal("experiment=mini", "optim.eps=0.9").startswith("optim=sgd has no key 'optim.eps'")


def test_a_key_of_another_network_names_those_it_belongs_to():
    resnets = ", ".join(f"model=resnet{layers}" for layers in (10, 18, 34, 50, 101, 152, 221, 293))
    assert refusal("model=df_resnet56", "model.base_width=16") == (
        f"model=df_resnet56 has no key 'model.base_width', which belongs to {resnets}; its keys: name, embedding_dim"
    )
    assert refusal("experiment=mini", "model=revnet46", "model.base_width=16").startswith("model=revnet46 has no key")


def test_a_network_has_the_keys_of_its_family():
    assert load("model=resnet18", "model.base_width=16").model == ResNetConfig(name="resnet18", base_width=16)
    assert load("model=df_resnet56", "model.embedding_dim=64").model == ModelConfig("df_resnet56", 64)
    assert load("experiment=mini", "model=revnet_tiny").model == ModelConfig("revnet_tiny", 256)


def test_a_network_of_another_command_is_not_the_name_of_a_schema():
    """`svt train` composes a group model; to `svt embed` the key of that name is the path of a model."""
    for name in ("resnet34", "resnet34_schema"):
        composition.compose("train", [])
        assert composition.compose("embed", [f"model={name}"]).model == name


def test_what_is_required_and_missing_is_listed():
    with pytest.raises(UserError) as caught:
        composition.load("train", ["seed=3"])
    assert str(caught.value) == (
        "svt train: required and not given: data.train, exp_dir; add data.train=... exp_dir=..."
    )
    with pytest.raises(UserError, match=r"svt embed: required and not given: data, out; add data=\.\.\. out=\.\.\.$"):
        composition.load("embed", ["model=m"])
    with pytest.raises(UserError, match="required and not given: exp_dir;"):
        composition.load("train", ["data.train=x", "exp_dir='???'"])


@pytest.mark.parametrize("value", ["${nowhere}", "a/${nowhere}/b", "${oc.env:SVT_NO_SUCH_VARIABLE}"])
def test_an_interpolation_that_leads_nowhere(value):
    message = refusal(f"exp_dir={value}")
    assert message.startswith("exp_dir: ")
    assert re.search("nowhere|SVT_NO_SUCH_VARIABLE", message)
    assert message.endswith("; `--key VALUE` takes a value with $ literally")


def test_an_interpolation_to_another_type():
    assert refusal("seed=${exp_dir}").startswith("seed: While dereferencing interpolation '${exp_dir}'")


def test_the_override_at_fault_is_named_among_many():
    assert refusal("model=resnet18", "seed=3", "loss=am", "trainer.log_steps=often", "loss.scale=30") == (
        "trainer.log_steps is 'often', expected a whole number"
    )


@settings(max_examples=20, deadline=None)
@given(
    override=st.text(alphabet=string.printable + "${}'é", min_size=1)
    | st.tuples(st.sampled_from(["seed", "exp_dir", "data.speeds", "optim", "loss.margin"]), NASTY).map("=".join)
)
def test_whatever_is_typed_composes_or_is_refused_in_a_sentence(override):
    with contextlib.suppress(UserError):  # anything else is a traceback on the user's screen
        assert isinstance(load(override), TrainConfig)


# ---- the network of init_from ----


@pytest.fixture
def origin(tmp_path):
    """exp_dir of a run, with a space in its path, and the model that was released from it."""
    folder = tmp_path / "a run"
    (folder / "model").mkdir(parents=True)
    network = "model:\n  name: resnet18\n  embedding_dim: 64\n  base_width: 16\n{}features:\n  num_bins: 40\n"
    (folder / "config.yaml").write_text(network.format("") + "seed: 5\n")
    (folder / "model" / "model.yaml").write_text(network.format("  num_bins: 40\n"))
    return folder


@pytest.mark.parametrize("part", ["", "model"])
def test_network_and_features_are_those_of_init_from(origin, part, caplog):
    caplog.set_level("INFO", "svtoolkit")
    overrides, _ = parse_words("train", ["experiment=voxceleb_lm", "--init-from", str(origin / part)])
    config = load(*overrides)
    assert config.model == ResNetConfig("resnet18", 64, 16)
    assert (config.features.num_bins, config.features.window, config.loss.margin) == (40, "hamming", 0.5)
    assert config.seed == 42
    assert "resnet18" in caplog.text
    assert str(origin) in caplog.text
    assert load(*overrides, "experiment=mini").model.name == "resnet18"


def test_the_command_line_wins_over_init_from(origin):
    config = load(f"init_from={origin}", "model=resnet34", "features.num_bins=80")
    assert config.model == ResNetConfig("resnet34")
    assert config.features.num_bins == 80
    assert load(f"init_from={origin}", "model.base_width=8").model == ResNetConfig("resnet18", 64, 8)
    assert load(f"init_from={origin}", "init_from=null").model.name == "resnet34"
    assert load("init_from=nowhere").model.name == "resnet34"  # that it is not there is said where it is read


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("model: {name: resnet43}\nfeatures: {}\n", "there is no model 'resnet43'"),
        ("seed: 3\n", "says nothing of the model"),
        ("a: [\n", "cannot be read as YAML"),
        ("model: {name: resnet18, embedding_dim: wide}\nfeatures: {}\n", "model.embedding_dim is 'wide'"),
    ],
)
def test_a_description_that_is_none(origin, content, part):
    (origin / "config.yaml").write_text(content)
    with pytest.raises(UserError) as caught:
        load(f"init_from={origin}")
    assert str(caught.value).startswith(f"{origin}/config.yaml: ")
    assert part in str(caught.value)
