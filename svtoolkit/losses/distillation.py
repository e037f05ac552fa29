"""Distance of embeddings to those of a larger network.

1 - cos(e, t) of an embedding e and that of the larger network t: embedding-level distillation of Wang et al.,
"Knowledge distillation for small foot-print deep speaker embedding", ICASSP 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cosine_distances(embeddings: Tensor, targets: Tensor) -> Tensor:
    """In float32: (batch, embedding_dim) twice -> (batch,)."""
    wide = torch.promote_types(embeddings.dtype, torch.float32)
    return 1 - F.cosine_similarity(embeddings.to(wide), targets.to(wide))
