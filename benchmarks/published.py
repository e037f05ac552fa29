"""What Liu & Qian publish of memory, in their tables I, V, VI and VII, and our targets.

B. Liu and Y. Qian, "Memory-Efficient Training for Deep Speaker Embedding Learning in Speaker Verification",
arXiv:2412.01195. They measured on an 11 GB GTX 2080 Ti with crops of 200 frames and 80 bins: GB per utterance, and the
largest batch that fits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One network of the tables.

    Attributes:
        gb: per utterance, with the 32-bit optimizer.
        batch: the largest that fits, with the 32-bit optimizer.
        peer: the network with stored activations that the paper compares it with; None if it is that network itself.
        eight_bit_gb: per utterance, with the 8-bit optimizer; given of reversible networks.
        eight_bit_batch: the largest that fits, with the 8-bit optimizer.
        target: our target: GiB per utterance that the reversible network may need at most.
        stricter_target: a second one, where there is one.
    """

    gb: float
    batch: int
    peer: str | None = None
    eight_bit_gb: float | None = None
    eight_bit_batch: int | None = None
    target: float | None = None
    stricter_target: float | None = None


TABLE_I: dict[str, dict[str, float]] = {
    "resnet34": {"batch": 64, "activations": 5.14, "optimizer_states": 0.032, "weights": 0.027, "others": 0.455},
    "df_resnet56": {"batch": 16, "activations": 5.244, "optimizer_states": 0.041, "weights": 0.018, "others": 0.389},
}
"""GB of a step on a batch."""

TABLE_V = {
    "resnet34": Published(0.06, 154),
    "revnet46": Published(0.04, 235, "resnet34", 0.039, 236, target=0.018),
    "revnet57": Published(0.03, 300, "resnet34", 0.029, 301, target=0.0125),
    "resnet101": Published(0.33, 31),
    "revnet126": Published(0.04, 213, "resnet101", 0.039, 215, target=0.018),
    "revnet137": Published(0.03, 297, "resnet101", 0.029, 299, target=0.0125),
    "revnet140": Published(0.15, 62, "resnet101", 0.147, 63, target=0.060),
    "revnet155": Published(0.12, 74, "resnet101", 0.118, 75, target=0.045),
    "resnet152": Published(0.47, 22),
    "revnet178": Published(0.04, 211, "resnet152", 0.039, 213, target=0.018),
    "revnet197": Published(0.03, 295, "resnet152", 0.029, 297, target=0.0125),
    "revnet230": Published(0.20, 48, "resnet152", 0.195, 49, target=0.060),
    "revnet245": Published(0.12, 73, "resnet152", 0.118, 74, target=0.045),
}

TABLE_VI = {
    "df_resnet56": Published(0.355, 33),
    "df_revnet66": Published(0.080, 137, "df_resnet56", 0.079, 138, target=0.022),
    "df_revnet89": Published(0.077, 141, "df_resnet56", 0.076, 142, target=0.018, stricter_target=0.015),
    "df_resnet110": Published(0.523, 23),
    "df_revnet126": Published(0.083, 133, "df_resnet110", 0.082, 134, target=0.022),
    "df_revnet149": Published(0.077, 137, "df_resnet110", 0.076, 138, target=0.018, stricter_target=0.015),
    "df_resnet179": Published(0.858, 14),
    "df_revnet258": Published(0.075, 137, "df_resnet179", 0.074, 138, target=0.022),
    "df_revnet281": Published(0.073, 140, "df_resnet179", 0.072, 141, target=0.018, stricter_target=0.015),
    "df_resnet233": Published(1.034, 12),
    "df_revnet354": Published(0.075, 146, "df_resnet233", 0.074, 147, target=0.022),
    "df_revnet377": Published(0.073, 149, "df_resnet233", 0.072, 150, target=0.018, stricter_target=0.015),
}

PUBLISHED = TABLE_V | TABLE_VI

TOTAL_BATCH = 256
TABLE_VII = {
    "resnet101": (9, 2),
    "revnet137": (1, 3),
    "resnet152": (12, 3),
    "revnet197": (1, 5),
    "df_resnet179": (19, 3),
    "df_revnet281": (2, 5),
    "df_resnet233": (22, 4),
    "df_revnet377": (2, 6),
}
"""GPUs of 11 GB that train on ``TOTAL_BATCH`` crops a step, and days that they take."""

FREE_DEPTH = ("revnet57", "revnet137", "revnet197")
"""Networks whose memory per utterance may differ by ``FREE_DEPTH_TOLERANCE`` at most, however deep they are."""
FREE_DEPTH_TOLERANCE = 0.03


def optimizer_of(network: str) -> str:
    """sgd, as in table V and of networks in neither, or adamw, as in table VI."""
    return "adamw" if network in TABLE_VI else "sgd"
