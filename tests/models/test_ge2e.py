"""The GE2E LSTM: its embedding written out, and what its layers cost."""

from __future__ import annotations

import torch

from svtoolkit.memory.operations import Operations
from svtoolkit.models import build_model


def test_the_embedding_is_what_the_last_frame_leaves():
    torch.manual_seed(0)  # of which some values of either embedding are above 0
    network = build_model("ge2e_lstm", num_bins=5, embedding_dim=3).double()
    frames = torch.randn(2, 4, 5, dtype=torch.float64)
    weights = network.state_dict()
    rows = list(frames.unbind(1))
    for layer in range(3):
        hidden = cell = torch.zeros(2, 256, dtype=torch.float64)
        outputs = []
        for row in rows:
            gates = row @ weights[f"lstm.weight_ih_l{layer}"].T + weights[f"lstm.bias_ih_l{layer}"]
            gates = gates + hidden @ weights[f"lstm.weight_hh_l{layer}"].T + weights[f"lstm.bias_hh_l{layer}"]
            enter, forget, new, leave = gates.chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            outputs.append(hidden)
        rows = outputs
    raw = (rows[-1] @ weights["embedding.weight"].T + weights["embedding.bias"]).clamp(min=0)
    assert (raw.sum(1) > 0).all()
    expected = raw / raw.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(network(frames), expected, rtol=0, atol=1e-12)


def test_operations_of_an_lstm_are_counted():
    network = build_model("ge2e_lstm", num_bins=40)
    with torch.no_grad(), Operations() as work:
        network(torch.zeros(2, 160, 40))
    a_frame = 4 * 256 * (40 + 256) + 2 * 4 * 256 * (256 + 256)
    assert work.count // 2 == 2 * (160 * a_frame + 256 * 256)
