"""Every loss by name: one row each. Its head is imported when it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svtoolkit.config import LossConfig, SphereFace2Config, SubcenterLossConfig, TopKLossConfig
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings, defaults

if TYPE_CHECKING:
    from svtoolkit.losses.head import ClassificationHead

LOSSES = Registry(
    "loss",
    "svtoolkit.losses",
    {
        "aam": Row("svtoolkit.losses.margins:AAMHead", help="additive angular margin (ArcFace)"),
        "aam_subcenter": Row(
            "svtoolkit.losses.centers:SubcenterAAMHead", SubcenterLossConfig, help="aam with several centers a class"
        ),
        "aam_topk": Row(
            "svtoolkit.losses.centers:TopKAAMHead",
            TopKLossConfig,
            help="the same, and the hardest classes are closer",
        ),
        "am": Row("svtoolkit.losses.margins:AMHead", help="additive margin (CosFace)"),
        "sphereface2": Row(
            "svtoolkit.losses.sphereface2:SphereFace2Head", SphereFace2Config, help="a binary decision of every class"
        ),
        "softmax": Row("svtoolkit.losses.margins:SoftmaxHead", help="plain softmax, without margin and scale"),
    },
    LossConfig,
)
"""Name -> how the head is built. A target takes embedding_dim and num_classes by position, ``scale``, the further
fields of its settings and the row's arguments by keyword, raises ValueError where they make no head, and returns a
ClassificationHead."""


def build_head(
    name: str, *, embedding_dim: int, num_classes: int, margin: float, scale: float, **options: Any
) -> ClassificationHead:
    """Build a head with fresh weights; ``margin`` is checked here and set by its schedule.

    Args:
        name: a name of ``LOSSES``.
        options: further settings of a loss that has some.

    Raises:
        UserError: unknown name or option, a margin or scale that the loss does not know.
    """
    row = LOSSES[name]
    settings = row.settings or LossConfig
    check_settings(f"loss={name}", settings, {"margin": margin, "scale": scale, **options})
    given = {**defaults(settings), **options, "scale": scale, **row.arguments}
    for of_the_run in ("margin", "shard"):
        given.pop(of_the_run)
    rank = given.pop("rank")
    head = LOSSES.load(name)
    try:
        built: ClassificationHead = head(embedding_dim, num_classes, **given)
        built.check_margin(margin)
        built.loss_name = name
        if rank is not None:
            built.lower_rank(rank)
    except ValueError as error:
        raise UserError(f"loss={name}: {error}") from error
    return built
