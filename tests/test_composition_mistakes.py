"""Mistaken overrides of the command line: the sentence that each gets."""

from __future__ import annotations

import contextlib
import re
import string

import pytest
from compositions import NASTY, load
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit import composition
from svtoolkit.cli import main
from svtoolkit.composition import Catalogue
from svtoolkit.config import ResNetConfig, RevNetConfig, TrainConfig
from svtoolkit.errors import UserError


def refusal(*overrides: str, command: str = "train") -> str:
    """The message that overrides are refused with: one line that begins with the command."""
    with pytest.raises(UserError) as caught:
        load(*overrides, command=command)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"svt {command}: ")
    return message.removeprefix(f"svt {command}: ")


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
        ("data.speeds=1.0,0.9", "data.speeds is '1.0,0.9', expected a list of numbers such as [1.0,0.9]"),
        ("data.speeds=fast", "data.speeds is 'fast', expected a list of numbers such as [1.0,0.9]"),
        ("trainer.loggers=null", "trainer.loggers is 'null', expected a list such as [a,b]"),
        ("trainer.loggers=csv,wandb", "trainer.loggers is 'csv,wandb', expected a list such as [a,b]; "
                                      "`--trainer.loggers VALUE` takes one text literally, commas included"),
        ("data.speeds=[fast]", "data.speeds is '[fast]', expected a list of numbers such as [1.0,0.9]"),
        ("data.speeds=null", "data.speeds is 'null', expected a list of numbers such as [1.0,0.9]"),
        ("exp_dir=null", "exp_dir is 'null', expected text; `--exp_dir VALUE` takes any text literally"),
        ("exp_dir=${", "exp_dir is '${', expected text; `--exp_dir VALUE` takes any text literally"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type(override, message):
    assert refusal("model=resnet18", override, "seed=3") == message


EXPERIMENTS = ", ".join(Catalogue("train").options["experiment"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("features=fbank81", "features has no option 'fbank81'; did you mean 'fbank80'? (all: "),
        ("trainer=defautl", "trainer has no option 'defautl'; did you mean 'default'? (all: default)"),
        (
            "optim=sdg",
            "optim has no option 'sdg'; did you mean 'sgd'? (all: adamw, adamw_8bit, muon, muon_8bit, sgd, sgd_8bit)",
        ),
        (
            "optim=lion",
            "optim has no option 'lion'; expected one of adamw, adamw_8bit, muon, muon_8bit, sgd, sgd_8bit, or nothing",
        ),
        ("experiment=min", f"experiment has no option 'min'; did you mean 'mini'? (all: {EXPERIMENTS})"),
        ("experiment=null", f"experiment has no option 'null'; expected one of {EXPERIMENTS}, or nothing"),
        ("trainer=null", "trainer has no option 'null'; expected one of default, or nothing"),
        ("trainer={epochs: 3}", "trainer has no option '{epochs: 3}'; expected one of default, or nothing"),
        (
            "loss='aaam'",
            "loss has no option 'aaam'; did you mean 'aam'? (all: aam, aam_subcenter, aam_topk, "
            "am, softmax, sphereface2)",
        ),
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
    options = "adamw, adamw_8bit, muon, muon_8bit, sgd, sgd_8bit"
    assert refusal(f"optim={value}").startswith(f"optim= has no value, expected one of {options}; if")
    assert refusal(f"seed={value}").startswith("seed= has no value, expected a whole number; if")


def test_a_key_of_another_optimizer_names_the_one_it_belongs_to():
    assert refusal("optim=adamw", "optim.momentum=0.9") == (
        "optim=adamw has no key 'optim.momentum', which belongs to optim=sgd, optim=muon, optim=sgd_8bit, "
        "optim=muon_8bit; its keys: name, lr, weight_decay, beta1, beta2, eps"
    )
    assert refusal("optim.beta1=0.9").startswith("optim=sgd has no key 'optim.beta1', which belongs to optim=adamw, ")
    assert refusal("experiment=voxceleb", "optim.eps=0.9").startswith("optim=sgd has no key 'optim.eps'")


def test_a_key_of_another_network_names_those_it_belongs_to():
    names = [f"resnet{layers}" for layers in (10, 18, 34, 50, 101, 152, 221, 293)]
    names += [f"reversed_resnet{layers}" for layers in (34, 50, 101, 152, 221, 293)]
    names += ["sb_ecapa_tdnn", "sb_xvector", "sb_resnet", "titanet_small", "titanet_large", "speakernet"]
    having = ", ".join(f"model={name}" for name in names)
    assert refusal("model=df_resnet56", "model.base_width=16") == (
        f"model=df_resnet56 has no key 'model.base_width', which belongs to {having}; its keys: name, embedding_dim, "
        "ranks, embedding_layers"
    )
    assert refusal("experiment=mini", "model=revnet46", "model.base_width=16").startswith("model=revnet46 has no key")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "memory=auto has no key 'memory.segments', which belongs to memory=checkpoint; its keys: strategy, exact"),
        (["memory=store"], "memory=store has no key 'memory.segments', which belongs to memory=checkpoint; its keys:"),
    ],
)
def test_a_key_of_another_memory_strategy(words, says):
    assert refusal(*words, "memory.segments=sqrt").startswith(says)


@pytest.mark.parametrize(("words", "option"), [([], "fbank80"), (["features=sb80"], "sb80")])
def test_a_key_of_another_front_end(words, option):
    says = f"features={option} has no key 'features.norm_signal', which belongs to features=redim_pt, features=redim_tf"
    assert refusal(*words, "features.norm_signal=true").startswith(says)


def test_a_network_has_the_keys_of_its_family():
    assert load("model=resnet18", "model.base_width=16").model == ResNetConfig(name="resnet18", base_width=16)
    assert load("model=revnet57", "model.embedding_dim=64").model == RevNetConfig("revnet57", 64)
    assert load("experiment=mini", "model=revnet_tiny").model == RevNetConfig("revnet_tiny", 256)


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
