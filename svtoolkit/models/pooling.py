"""From frames to one vector an utterance."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rows_of(feature_map: Tensor) -> Tensor:
    """(batch, channels, bins, frames) -> (batch, channels * bins, frames), float32 or float64; bins may be missing."""
    rows = feature_map.flatten(1, -2)
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


class StatisticsPooling(nn.Module):
    """Mean and standard deviation over time (Snyder et al., Interspeech 2017).

    WeSpeaker's TSTP: channel and frequency are flattened, the variance is unbiased, and 1e-7 stands under the root.
    A map of a single frame has no unbiased variance; its deviation is that of variance 0. Maps of half precision are
    pooled in float32: in float16 the square of a deviation above 256 is infinite.

    Args:
        eps: what is added to the variance under the root. Where it is 0, a channel that does not vary has no gradient.
        after_root: what is added to the deviation itself, as in SpeechBrain.

    Raises:
        ValueError: ``eps`` below 0.
    """

    def __init__(self, eps: float = 1e-7, *, after_root: float = 0.0) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"pooling_eps is {eps}, expected 0 or more")
        self.eps = eps
        self.after_root = after_root

    def forward(self, feature_map: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> (batch, 2 * channels * bins), float32 or float64; bins may be missing."""
        rows = rows_of(feature_map)
        correction = 1 if rows.shape[-1] > 1 else 0
        if self.eps == 0:
            deviation, mean = torch.std_mean(rows, dim=-1, correction=correction)
        else:
            variance, mean = torch.var_mean(rows, dim=-1, correction=correction)
            deviation = torch.sqrt(variance + self.eps)
        return torch.cat([mean, deviation + self.after_root if self.after_root else deviation], dim=1)


def weighted_statistics(rows: Tensor, logits: Tensor, least: float) -> Tensor:
    """Mean and deviation of rows under weights that are the softmax of logits over time; the variance is ``least`` or
    more. (batch, channels, frames), twice -> (batch, 2 * channels)."""
    weights = torch.softmax(logits.to(rows.dtype), dim=-1)
    mean = (weights * rows).sum(-1)
    variance = (weights * rows.square()).sum(-1) - mean.square()
    return torch.cat([mean, torch.sqrt(variance.clamp(min=least))], dim=1)


def seen_with_context(layer: nn.Conv1d, rows: Tensor, context: Tensor) -> Tensor:
    """What a layer makes of every frame beside the statistics of the utterance, which are computed with but once.

    (batch, channels, frames) and (batch, 2 * channels) -> (batch, out, frames).
    """
    of_frames, of_context = layer.weight.split([rows.shape[1], context.shape[1]], dim=1)
    return F.conv1d(rows, of_frames) + F.conv1d(context.unsqueeze(-1), of_context, layer.bias)


class AttentivePooling(nn.Module):
    """Mean and deviation over time, weighted by attention in each channel (Desplanques et al., Interspeech 2020).

    WeSpeaker's ASTP, eq. 1 to 5 of the paper with a tanh between the layers; the variance is at least 1e-7. Pooled in
    float32, as ``StatisticsPooling``.

    Args:
        channels: of the map, times its bins.
        hidden: of the layer between map and weights.
        global_context: whether the attention sees the mean and the deviation of the whole utterance too.
    """

    eps = 1e-7

    def __init__(self, channels: int, hidden: int = 128, *, global_context: bool = False) -> None:
        super().__init__()
        self.global_context = global_context
        self.linear1 = nn.Conv1d(channels * (3 if global_context else 1), hidden, 1)
        self.linear2 = nn.Conv1d(hidden, channels, 1)

    def forward(self, feature_map: Tensor) -> Tensor:
        """(batch, channels, ..., frames) -> (batch, 2 * channels), float32 or float64."""
        rows = rows_of(feature_map)
        return weighted_statistics(rows, self.linear2(torch.tanh(self._hidden(rows))), self.eps)

    def _hidden(self, rows: Tensor) -> Tensor:
        if not self.global_context:
            return self.linear1(rows)
        return seen_with_context(self.linear1, rows, StatisticsPooling(self.eps)(rows))


class ContextAttentivePooling(nn.Module):
    """As ``AttentivePooling`` with the context, with ReLU and BatchNorm before its tanh.

    The pooling of ECAPA-TDNN in SpeechBrain and 3D-Speaker: variances are means of squared deviations, those of the
    context too, and at least 1e-12.

    Args:
        channels: of the map.
        hidden: of the layer between map and weights.
    """

    eps = 1e-12

    def __init__(self, channels: int, hidden: int = 128) -> None:
        super().__init__()
        self.linear1 = nn.Conv1d(3 * channels, hidden, 1)
        self.bn = nn.BatchNorm1d(hidden)
        self.linear2 = nn.Conv1d(hidden, channels, 1)

    def forward(self, feature_map: Tensor) -> Tensor:
        """(batch, channels, frames) -> (batch, 2 * channels), float32 or float64."""
        rows = rows_of(feature_map)
        variance, mean = torch.var_mean(rows, dim=-1, correction=0)
        context = torch.cat([mean, torch.sqrt(variance.clamp(min=self.eps))], dim=1)
        hidden = torch.tanh(self.bn(F.relu(seen_with_context(self.linear1, rows, context))))
        weights = torch.softmax(self.linear2(hidden).to(rows.dtype), dim=-1)
        mean = (weights * rows).sum(-1)
        variance = (weights * (rows - mean.unsqueeze(-1)).square()).sum(-1)
        return torch.cat([mean, torch.sqrt(variance.clamp(min=self.eps))], dim=1)


class NormalisedAttentivePooling(nn.Module):
    """As ``AttentivePooling``, with ReLU and BatchNorm between the layers; the variance is at least 1e-5.

    WeSpeaker's ASP, that of VoxBlink2 and of the VoxCeleb trainer of Clova AI.

    Args:
        channels: of the map, times its bins.
        hidden: of the layer between map and weights.
    """

    eps = 1e-5

    def __init__(self, channels: int, hidden: int = 128) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            nn.Conv1d(channels, hidden, 1), nn.ReLU(), nn.BatchNorm1d(hidden), nn.Conv1d(hidden, channels, 1)
        )

    def forward(self, feature_map: Tensor) -> Tensor:
        """(batch, channels, ..., frames) -> (batch, 2 * channels), float32 or float64."""
        rows = rows_of(feature_map)
        return weighted_statistics(rows, self.attention(rows), self.eps)


class StretchedStatistics:
    """What ``StatisticsPooling`` makes of a map that comes in stretches of its frames, one after the other.

    Means and squared deviations are merged in float64 (Chan, Golub & LeVeque, 1983), so that no length loses digits;
    of mps, which has none, on the CPU.

    Args:
        eps, after_root: of the ``StatisticsPooling``.
    """

    def __init__(self, eps: float = 1e-7, after_root: float = 0.0) -> None:
        self.eps = eps
        self.after_root = after_root
        self.frames = 0
        self.device = torch.device("cpu")
        self.mean = torch.zeros(())
        self.squares = torch.zeros(())

    def include(self, feature_map: Tensor) -> None:
        """The next frames: (batch, channels, ..., frames), of which there is one or more."""
        self.device = feature_map.device
        rows = feature_map.flatten(1, -2)
        rows = (rows.cpu() if self.device.type == "mps" else rows).double()
        frames = rows.shape[-1]
        variance, mean = torch.var_mean(rows, dim=-1, correction=0)
        total = self.frames + frames
        step = mean - self.mean.to(mean)
        self.mean = self.mean.to(mean) + step * (frames / total)
        self.squares = self.squares.to(mean) + variance * frames + step.square() * (self.frames * frames / total)
        self.frames = total

    def pooled(self) -> Tensor:
        """(batch, 2 * channels * bins), float32."""
        variance = self.squares / max(1, self.frames - 1)
        deviation = torch.sqrt(variance + self.eps) + self.after_root
        return torch.cat([self.mean, deviation], dim=1).float().to(self.device)
