"""Equal error rates that were published of networks of the registry: percent, VoxCeleb1-O, trained on VoxCeleb2.

Liu & Qian, Memory-Efficient Training for Deep Speaker Embedding Learning, tables V (SGD) and VI (AdamW): those with
optimizers of 32-bit state.
"""

from __future__ import annotations

SOURCE = "Liu & Qian, tables V and VI"

VOX1_O: dict[str, float] = {
    "resnet34": 0.96,
    "revnet46": 0.85,
    "revnet57": 0.89,
    "resnet101": 0.62,
    "revnet126": 0.58,
    "revnet137": 0.58,
    "revnet140": 0.6,
    "revnet155": 0.59,
    "resnet152": 0.55,
    "revnet178": 0.54,
    "revnet197": 0.53,
    "revnet230": 0.49,
    "revnet245": 0.5,
    "df_resnet56": 0.96,
    "df_revnet66": 0.84,
    "df_revnet89": 0.87,
    "df_resnet110": 0.75,
    "df_revnet126": 0.71,
    "df_revnet149": 0.73,
    "df_resnet179": 0.62,
    "df_revnet258": 0.59,
    "df_revnet281": 0.62,
    "df_resnet233": 0.58,
    "df_revnet354": 0.59,
    "df_revnet377": 0.6,
}
"""Name -> EER."""
