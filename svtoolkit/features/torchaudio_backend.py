"""The filter bank by ``torchaudio.compliance.kaldi.fbank``, where a torchaudio that matches torch is installed."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch
from torch import Tensor, nn

from svtoolkit.features.kaldi_filters import INT16_FULL_SCALE, VTLN_BELOW_NYQUIST, VTLN_LOW, FilterBankOptions


class TorchaudioFilterBank(nn.Module):
    """Waveforms -> logarithms of mel energies, without mean removal; one utterance after the other.

    Raises:
        ImportError: torchaudio is missing or was built for another torch.
    """

    def __init__(self, options: FilterBankOptions) -> None:
        super().__init__()
        _import_kaldi_compliance()
        self.options = options

    def forward(self, waveforms: Tensor) -> Tensor:
        """float32 (batch, samples) in [-1, 1], a window or longer -> float32 (batch, frames, bins)."""
        if self.options.int16_scale:
            waveforms = waveforms * INT16_FULL_SCALE
        # Looked up here, not kept: a module cannot be pickled or copied with the front end.
        kaldi = _import_kaldi_compliance()
        return torch.stack([self._log_mel(kaldi, waveform) for waveform in waveforms])

    def _log_mel(self, kaldi: ModuleType, waveform: Tensor) -> Tensor:
        return kaldi.fbank(
            waveform.unsqueeze(0),
            sample_frequency=float(self.options.sample_rate),
            num_mel_bins=self.options.num_bins,
            frame_length=self.options.frame_length_ms,
            frame_shift=self.options.frame_shift_ms,
            window_type=self.options.window,
            preemphasis_coefficient=self.options.preemphasis,
            low_freq=self.options.low_freq,
            high_freq=self.options.high_freq,
            dither=0.0,
            remove_dc_offset=True,
            snip_edges=True,
            round_to_power_of_two=True,
            use_energy=False,
            use_power=True,
            use_log_fbank=True,
            subtract_mean=False,
            vtln_low=VTLN_LOW,
            vtln_high=-VTLN_BELOW_NYQUIST,
            vtln_warp=self.options.warp,
        )


def _import_kaldi_compliance() -> ModuleType:
    try:
        return importlib.import_module("torchaudio.compliance.kaldi")
    # A build for another torch fails as its libraries are loaded (OSError) or register operators (RuntimeError).
    except (ImportError, OSError, RuntimeError) as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ImportError(
            f"features.backend=torchaudio needs a torchaudio that matches torch {torch.__version__}, but importing it "
            f"gives {found}; install a matching build, or train with features.backend=torch"
        ) from error
