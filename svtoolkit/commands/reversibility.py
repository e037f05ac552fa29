"""svt reversibility: how well a reversible network finds its activations again, beside what theory says."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from svtoolkit.config import ReversibilityConfig
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.progress import show_progress


def run(config: ReversibilityConfig, command_line: str) -> int:
    """Print the table or the data; write figures where ``out`` names a folder."""
    _check(config)
    import torch

    from svtoolkit.models import build_model
    from svtoolkit.planning.reversibility import check_leaky_relu, check_norm, measure_chains, measure_network

    torch.manual_seed(config.seed)
    network = build_model(num_bins=config.num_bins, **asdict(config.model)).train()
    features = torch.randn(config.batch_size, config.frames, config.num_bins)
    reconstructions = []
    with show_progress("reversibility", 2 * len(config.precisions) + 1, "run", leave=False) as progress:
        for precision in config.precisions:
            for exact in (False, True):
                reconstructions += measure_network(network, features, precision, exact=exact)
                progress.update()
        floor = getattr(config.model, "norm_floor", 0.1)
        chains = measure_chains(config.depths, config.slopes, floor, config.seed)
        progress.update()
    found = {
        "model": asdict(config.model),
        "reconstructions": [row._asdict() for row in reconstructions],
        "norm": [row._asdict() for row in check_norm(seed=config.seed)],
        "leaky_relu": [row._asdict() for row in check_leaky_relu(seed=config.seed)],
        "chains": [row._asdict() for row in chains],
    }
    if config.out is not None:
        _write(Path(config.out), found)
    print(_json(found) if config.format == "json" else "\n".join(_table(config, found)))
    return 0


def _check(config: ReversibilityConfig) -> None:
    if config.format not in ("table", "json"):
        raise UserError(f"format is {config.format!r}, expected table or json")
    known = ("fp64", "fp32", "bf16", "fp16")
    for precision in config.precisions:
        if precision not in known:
            raise UserError(f"precisions has {precision!r}, expected some of {', '.join(known)}")
    for key in ("frames", "batch_size", "num_bins"):
        if getattr(config, key) < 1:
            raise UserError(f"{key} is {getattr(config, key)}, expected 1 or more")
    for depth in config.depths:
        if depth < 4 or depth % 4:
            raise UserError(f"depths has {depth}, expected multiples of 4, which make whole couplings")
    for slope in config.slopes:
        if not 0 < slope <= 1:
            raise UserError(f"slopes has {slope}, expected numbers above 0, 1 at most")


def _table(config: ReversibilityConfig, found: dict[str, Any]) -> list[str]:
    lines = [
        f"{config.model.name}: signal to noise of what inversion gives back, in dB; exact: bit for bit",
        "",
        f"{'precision':<10} {'grid':<5} {'first':>9} {'last':>9} {'lowest':>9}   {'inside, mean':>12} {'lowest':>9}",
    ]
    for precision in config.precisions:
        for exact in (False, True):
            rows = [r for r in found["reconstructions"] if (r["precision"], r["exact"]) == (precision, exact)]
            streams = [r["snr"] for r in rows if r["kind"] == "streams"]
            inside = [r["snr"] for r in rows if r["kind"] == "inside"]
            lines.append(
                f"{precision:<10} {'yes' if exact else 'no':<5} {_db(streams[:1]):>9} {_db(streams[-1:]):>9} "
                f"{_db(streams):>9}   {_mean(inside):>12} {_db(inside):>9}"
            )
    lines += ["", "by what a layer reduces it, alpha: formula and measured"]
    for key, name in (("norm", "norm, gains 1 and rho"), ("leaky_relu", "leaky ReLU, slope n")):
        lines += [f"{name:<24} {'formula':>10} {'measured':>10}"]
        lines += [f"{row['parameter']:>24g} {row['expected']:>10.4g} {row['measured']:>10.4g}" for row in found[key]]
    if found["chains"]:
        lines += ["", "lowest of a chain of units, float32, in dB: layerwise / hybrid"]
        lines.append(f"{'units':>8} " + " ".join(f"{f'slope {slope:g}':>15}" for slope in config.slopes))
        ratios = {(row["design"], row["units"], row["slope"]): row["snr"] for row in found["chains"]}
        for units in config.depths:
            cells = [
                f"{ratios['layerwise', units, slope]:.0f} / {ratios['hybrid', units, slope]:.0f}"
                for slope in config.slopes
            ]
            lines.append(f"{units:>8} " + " ".join(f"{cell:>15}" for cell in cells))
    return lines


def _db(ratios: Sequence[float | None]) -> str:
    """The lowest; '-' of none."""
    if not ratios:
        return "-"
    rounded = [ratio for ratio in ratios if ratio is not None]
    return f"{min(rounded):.1f}" if rounded else "exact"


def _mean(ratios: Sequence[float | None]) -> str:
    rounded = [ratio for ratio in ratios if ratio is not None]
    return f"{sum(rounded) / len(rounded):.1f}" if rounded else _db(ratios)


def _json(found: dict[str, Any]) -> str:
    return json.dumps(_plain(found), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """Infinite ratios as null, which JSON has no number for."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(folder: Path, found: dict[str, Any]) -> None:
    # matplotlib takes a good part of a second to import
    from svtoolkit.planning.reversibility import Alpha, ChainRatio, Reconstruction
    from svtoolkit.reporting.canvas import png_bytes, svg_text
    from svtoolkit.reporting.reversibility_figures import alpha_figure, depth_figure, layers_figure

    figures = {
        "norm": alpha_figure([Alpha(**row) for row in found["norm"]], "rho: gains are 1 and rho"),
        "leaky_relu": alpha_figure([Alpha(**row) for row in found["leaky_relu"]], "slope n"),
        "layers": layers_figure([Reconstruction(**row) for row in found["reconstructions"]]),
    }
    if found["chains"]:
        figures["depth"] = depth_figure([ChainRatio(**row) for row in found["chains"]])
    with atomic_write(folder / "reversibility.json") as stream:
        stream.write(_json(found) + "\n")
    for name, figure in figures.items():
        with atomic_write(folder / f"{name}.svg") as stream:
            stream.write(svg_text(figure))
        with atomic_write(folder / f"{name}.png", "wb") as picture:
            picture.write(png_bytes(figure))
