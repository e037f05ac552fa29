"""A network by its name, with fresh weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from svtoolkit.config import ModelConfig
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.models.registry import NETWORKS, RELEASED_NETWORKS
from svtoolkit.registry import Row, check_settings, defaults

if TYPE_CHECKING:
    from svtoolkit.models.speaker_network import SpeakerNetwork


def _row_of(name: object) -> Row:
    """Of a network that can be built, by whatever a description says."""
    released = RELEASED_NETWORKS.get(name) if isinstance(name, str) else None
    return released or NETWORKS[name]  # type: ignore[index]  # which says what is wrong with it


def list_models() -> list[str]:
    """Names that ``build_model`` knows."""
    return list(NETWORKS)


def complete_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``build_model`` with the settings that are left at their defaults, as a run stores them.

    No ranks are no setting: models without any are described as they were before there were ranks.
    """
    complete = {**defaults(_row_of(model["name"]).settings or ModelConfig), **model}
    return {key: value for key, value in complete.items() if key != "ranks" or value}


def build_model(name: str, *, num_bins: int = 80, embedding_dim: int = 256, **options: Any) -> SpeakerNetwork:
    """Build a network with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_bins: mel bins of the input.
        embedding_dim: size of the embedding.
        options: ``ranks``, of layers whose matrix is a product of low rank, by their names, and those of the family;
            ResNet: ``base_width``, channels of the first stage. None: as published, of any family, which may also be
            given what another begins with.

    Returns:
        a module with input (batch, frames, num_bins), output (batch, embedding_dim) and an attribute ``embedding_dim``.

    Raises:
        UserError: unknown name or option (with the nearest known one), a size that is no whole number above 0, or
            what a package of the user's own built is no such module.
    """
    row = _row_of(name)
    settings = row.settings or ModelConfig
    families = [defaults(each) for each in {row.settings or ModelConfig for row in NETWORKS.rows.values()}]
    begins = {key: [each[key] for each in families if key in each] for key in options}
    own = defaults(settings)
    given = {
        key: value
        for key, value in options.items()
        if not begins[key] or (value is not None if key in own else value not in [None, *begins[key]])
    }
    given |= {"num_bins": num_bins, "embedding_dim": embedding_dim}
    check_settings(f"network {name}", settings, given, beside={"num_bins": int})
    ranks = given.pop("ranks", {})
    for key in ("num_bins", "embedding_dim"):
        if given[key] < 1:
            raise UserError(f"network {name}: {key} is {given[key]!r:.80}, expected a whole number of 1 or more")
    for key, value in given.items():
        if problem := explain_excess("num_bins" if key == "num_bins" else f"model.{key}", value):
            raise UserError(f"network {name}: {key} is {value!r:.80}, {problem}")
    try:
        build = row.load() if name in RELEASED_NETWORKS else NETWORKS.load(name)
        begun = {key: value for key, value in defaults(settings).items() if key != "ranks"}
        network: SpeakerNetwork = build(**{**begun, **given, **row.arguments})
    except ValueError as error:
        raise UserError(f"network {name}: {error}") from error
    if getattr(network, "embedding_dim", None) != embedding_dim:
        raise UserError(
            f"network {name}: {row.target} built a {type(network).__name__} whose attribute embedding_dim is "
            f"{getattr(network, 'embedding_dim', 'missing')}, expected {embedding_dim}"
        )
    if ranks:
        from svtoolkit.compression.layers import apply_ranks

        try:
            apply_ranks(network, ranks)
        except UserError as error:
            raise UserError(f"network {name}: {error}") from error
    return network
