"""One optimizer step: accumulation, precision, clipping, and what it does about numbers that are not finite."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from network_material import NARROW, narrow
from torch import nn

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import CropBatch
from svtoolkit.features import build_front_end
from svtoolkit.losses import build_head
from svtoolkit.models import build_model
from svtoolkit.optim import build_optimizer
from svtoolkit.planning.network_facts import family_of
from svtoolkit.training.step import OptimizerStep

BATCH, BINS, CLASSES, DIMENSION = 8, 24, 5, 16
FRONT_END = build_front_end(num_bins=BINS)
SAMPLES = FRONT_END.num_samples(40)
MASKS = SpecAugment(1.0, 1, 8, 1, 4)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


class MeanNetwork(nn.Module):
    """Without BatchNorm: the gradient of a crop does not depend on its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(BINS, 32)
        self.embedding = nn.Linear(32, DIMENSION)

    def forward(self, frames):
        return self.embedding(torch.tanh(self.hidden(frames)).mean(dim=1))


class RootNetwork(MeanNetwork):
    """Its embedding is finite, its gradient is not: the root of 0 is infinitely steep."""

    def forward(self, frames):
        return super().forward(frames) + (0.0 * self.hidden.weight.sum()).sqrt()


def make_step(network, precision="fp32", micro_batch=BATCH, clip=None, optim=None, margin=0.2):
    torch.manual_seed(1)
    head = build_head("aam", embedding_dim=DIMENSION, num_classes=CLASSES, margin=margin, scale=16.0)
    head.margin = margin
    settings = optim or {"name": "sgd", "lr": 0.1, "weight_decay": 0.0, "momentum": 0.9, "nesterov": True}
    optimizer = build_optimizer([*network.parameters(), *head.parameters()], **settings)
    step = OptimizerStep(
        FRONT_END,
        network,
        head,
        optimizer,
        MASKS,
        device=CPU,
        precision=precision,
        batch_size=BATCH,
        micro_batch=micro_batch,
        gradient_clip=clip,
    )
    if precision == "fp16":
        step.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)  # where the default comes to after some steps
    return step


def resnet():
    torch.manual_seed(2)
    return build_model("resnet10", num_bins=BINS, embedding_dim=DIMENSION, base_width=4).train()


def mean_network():
    torch.manual_seed(2)
    return MeanNetwork()


def make_batch(seed=0):
    rng = np.random.default_rng(seed)
    masks = np.stack([MASKS.draw(40, BINS, rng) for _ in range(BATCH)])
    return CropBatch(
        torch.from_numpy(0.1 * rng.standard_normal((BATCH, SAMPLES), dtype=np.float32)),
        torch.from_numpy(rng.integers(0, CLASSES, BATCH)),
        torch.from_numpy(masks),
        torch.arange(100, 100 + BATCH),
    )


def pieces(batch, size):
    return iter([CropBatch(*parts) for parts in zip(*(tensor.split(size) for tensor in batch[:4]), strict=True)])


def spoil(batch, rows):
    waveforms = batch.waveforms.clone()
    waveforms[rows, 1234] = torch.nan
    return batch._replace(waveforms=waveforms)


def gradients(step):
    return {f"{number}": parameter.grad.clone() for number, parameter in enumerate(step.parameters)}


def everything(step):
    """A copy of all that a step may change."""
    optimizer = copy.deepcopy(step.optimizer.state_dict())
    modules = {"network": step.network.state_dict(), "head": step.head.state_dict()}
    return copy.deepcopy(modules) | {"optimizer": optimizer}


def assert_same(before, after, names=("network", "head", "optimizer")):
    for name in names:
        ours, theirs = flat(before[name]), flat(after[name])
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            assert torch.equal(torch.as_tensor(left), torch.as_tensor(right)), name


def flat(node):
    if isinstance(node, dict):
        return list(itertools.chain.from_iterable(flat(value) for value in node.values()))
    if isinstance(node, list | tuple):
        return list(itertools.chain.from_iterable(flat(value) for value in node))
    return [] if node is None or isinstance(node, str) else [node]


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
@pytest.mark.parametrize("frozen_batch_norm", [False, True])
def test_accumulated_micro_batches_give_the_gradient_of_the_batch(micro_batch, frozen_batch_norm):
    network = resnet().eval() if frozen_batch_norm else mean_network()
    whole, parts = make_step(copy.deepcopy(network)), make_step(network, micro_batch=micro_batch)
    batch = make_batch()
    ours, theirs = whole(iter([batch])), parts(pieces(batch, micro_batch))
    expected = gradients(whole)
    for name, gradient in gradients(parts).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)
    assert ours.meter.loss == pytest.approx(theirs.meter.loss, rel=1e-5)
    assert ours.meter.crops == theirs.meter.crops == BATCH
    assert (ours.meter.correct, ours.meter.correct_no_margin) == (theirs.meter.correct, theirs.meter.correct_no_margin)


def test_batch_norm_sees_micro_batches():
    """The documented exception: with BatchNorm in training mode, the statistics are those of the micro-batch."""
    whole, parts = make_step(resnet()), make_step(resnet(), micro_batch=2)
    batch = make_batch()
    whole(iter([batch]))
    parts(pieces(batch, 2))
    different = [
        not torch.allclose(gradients(parts)[name], gradients(whole)[name], rtol=1e-2) for name in gradients(whole)
    ]
    assert any(different)
    assert parts.network.stem[1].num_batches_tracked == 4
    assert whole.network.stem[1].num_batches_tracked == 1


def test_the_update_is_that_of_the_mean_loss():
    step, batch = make_step(mean_network()), make_batch()
    network, head = copy.deepcopy(step.network), copy.deepcopy(step.head)
    features = MASKS.apply(FRONT_END(batch.waveforms), batch.masks)
    output = head(network(features), batch.labels)
    output.losses.mean().backward()
    result = step(iter([batch]))
    assert result.nonfinite_entries == []
    assert result.meter.loss == pytest.approx(float(output.losses.detach().sum()), rel=1e-6)
    assert result.meter.correct_no_margin == int(output.correct_no_margin.sum())
    plain = zip([*network.parameters(), *head.parameters()], step.parameters, strict=True)
    for before, after in plain:
        # The first Nesterov step of momentum 0.9 goes 1.9 gradients far.
        torch.testing.assert_close(after.detach(), before.detach() - 0.1 * 1.9 * before.grad, rtol=1e-5, atol=1e-7)


def test_times_are_measured():
    batch = make_batch()

    def slow():
        torch.randn(300, 300).inverse()
        yield batch

    meter = make_step(mean_network())(slow()).meter
    assert 0 < meter.waiting < meter.seconds


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("micro_batch", [8, 2])
def test_a_nan_in_an_utterance_changes_nothing_and_is_named(precision, micro_batch):
    step = make_step(resnet(), precision, micro_batch)
    for seed in range(2):  # momentum and statistics exist
        step(pieces(make_batch(seed), micro_batch))
    before, scale = everything(step), step.scaler.get_scale()
    # BatchNorm spreads the NaN over the micro-batch that it is in; the utterance that brought it is named.
    result = step(pieces(spoil(make_batch(3), [5]), micro_batch))
    assert result.nonfinite_entries == [105]
    assert_same(before, everything(step))
    assert step.scaler.get_scale() == scale
    assert step(pieces(make_batch(4), micro_batch)).nonfinite_entries == []
    assert not torch.equal(before["head"]["weight"], step.head.weight)


def test_all_broken_utterances_are_named():
    step = make_step(mean_network(), micro_batch=2)
    before = everything(step)
    assert step(pieces(spoil(make_batch(), [1, 6, 7]), 2)).nonfinite_entries == [101, 106, 107]
    assert_same(before, everything(step))


def test_losses_that_are_not_finite_name_their_utterances_where_the_samples_are():
    class Picky(MeanNetwork):
        def forward(self, frames):
            embeddings = super().forward(frames)
            return embeddings * torch.where(torch.arange(len(frames)) % 4 == 2, torch.inf, 1.0).unsqueeze(1)

    step = make_step(Picky())
    before = everything(step)
    assert step(iter([make_batch()])).nonfinite_entries == [102, 106]
    assert_same(before, everything(step))


def test_an_infinite_gradient_of_a_finite_loss_changes_nothing_and_names_the_batch():
    step = make_step(RootNetwork())
    before = everything(step)
    result = step(pieces(make_batch(), BATCH))
    assert np.isfinite(result.meter.loss)
    assert result.nonfinite_entries == list(range(100, 108))
    assert_same(before, everything(step))


def test_an_infinite_gradient_under_fp16_is_told_from_an_overflow_once_there_is_no_scale_to_lower():
    step = make_step(RootNetwork(), "fp16")
    before = everything(step)
    found = [step(iter([make_batch(seed)])).nonfinite_entries for seed in range(11)]
    assert found[:8] == [[]] * 8, "256 is halved 8 times to 1"
    assert found[8:] == [list(range(100, 108))] * 3
    assert_same(before, everything(step))


def test_an_overflow_of_the_scaled_gradient_is_left_to_the_scaler():
    step = make_step(resnet(), "fp16")
    step(iter([make_batch()]))
    step.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    before = everything(step)
    result = step(iter([make_batch(1)]))
    assert result.nonfinite_entries == []
    assert np.isfinite(result.meter.loss)
    assert_same(before, everything(step), names=("head", "optimizer"))
    trainable = [name for name, _ in step.network.named_parameters()]
    assert all(torch.equal(before["network"][name], step.network.state_dict()[name]) for name in trainable)
    assert step.scaler.get_scale() == 2.0**39
    for seed in range(60):
        step(iter([make_batch(seed)]))
        if step.scaler.get_scale() == 2.0**39 or not torch.equal(before["head"]["weight"], step.head.weight):
            break
    assert not torch.equal(before["head"]["weight"], step.head.weight), "the scale fell until an update was possible"
    assert all(torch.isfinite(parameter).all() for parameter in step.parameters)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("fp16", 0.01)])
def test_low_precision_is_close_to_float32(precision, tolerance):
    exact, low = make_step(resnet()), make_step(resnet(), precision)
    for seed in range(3):
        expected, found = exact(iter([make_batch(seed)])), low(iter([make_batch(seed)]))
        assert found.nonfinite_entries == []
        assert found.meter.loss == pytest.approx(expected.meter.loss, rel=tolerance)
    assert found.meter.loss != expected.meter.loss, "the precision had an effect"
    assert all(parameter.dtype == torch.float32 for parameter in low.parameters)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("share", [0.1, 0.5, 3.0])
def test_the_gradient_is_clipped_to_its_norm(share, precision):
    """All weights move as one vector, of the length that the ceiling allows."""
    sgd = {"name": "sgd", "lr": 1.0, "weight_decay": 0.0, "momentum": 0.0, "nesterov": False}
    free = make_step(mean_network(), precision, optim=sgd)
    batch = make_batch()
    before = [parameter.detach().clone() for parameter in free.parameters]
    free(iter([batch]))
    moves = [old - new.detach() for old, new in zip(before, free.parameters, strict=True)]
    norm = float(torch.sqrt(sum((move.double() ** 2).sum() for move in moves)))
    ceiling = share * norm
    clipped = make_step(mean_network(), precision, clip=ceiling, optim=sgd)
    clipped(iter([batch]))
    for old, new, move in zip(before, clipped.parameters, moves, strict=True):
        torch.testing.assert_close(old - new.detach(), move * min(1.0, ceiling / norm), rtol=1e-3, atol=1e-6)


def test_adamw_steps_and_resumes_its_moments():
    optim = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    step, expected = make_step(mean_network(), optim=optim), copy.deepcopy(make_step(mean_network(), optim=optim))
    for seed in range(3):
        step(iter([make_batch(seed)]))
    expected(iter([make_batch(0)]))
    state = everything(expected)
    resumed = make_step(mean_network(), optim=optim)
    resumed.network.load_state_dict(state["network"])
    resumed.head.load_state_dict(state["head"])
    resumed.optimizer.load_state_dict(state["optimizer"])
    for seed in (1, 2):
        resumed(iter([make_batch(seed)]))
    assert_same(everything(step), everything(resumed))


@pytest.mark.parametrize("name", {family_of(name): name for name in NARROW}.values())
def test_every_family_learns_the_speakers_of_a_batch(name):
    optim = {"name": "adamw", "lr": 0.0005, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    step = make_step(narrow(name, num_bins=BINS, embedding_dim=DIMENSION), optim=optim, margin=0.0)
    batch = make_batch()
    losses = [step(iter([batch])).meter.loss for _ in range(5)]
    assert min(losses) < 0.9 * losses[0]
    assert all(parameter.grad is not None for parameter in step.network.parameters() if parameter.requires_grad)
