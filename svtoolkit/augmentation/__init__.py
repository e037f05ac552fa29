"""Augmentation of training crops while they are loaded: noise, music, babble, reverberation, gain, telephone.

A plan (plain numbers) is drawn for a crop from the generator of its (seed, epoch, entry); the slices of noise and the
impulse response that it names are decoded; then it is carried out, on the crop in the loader worker (``apply_plan``) or
on the batch on the training device (``apply_batch``), by the same functions and to the same result up to rounding.
"""

from svtoolkit.augmentation.apply import AugmentationBatch, apply_batch, apply_plan, collate_plans
from svtoolkit.augmentation.augmenter import Augmenter
from svtoolkit.augmentation.materials import Materials
from svtoolkit.augmentation.noise_library import ImpulseLibrary, NoiseLibrary
from svtoolkit.augmentation.plan import Plan, Slice
from svtoolkit.augmentation.policy import AugmentationPolicy

__all__ = [
    "AugmentationBatch",
    "AugmentationPolicy",
    "Augmenter",
    "ImpulseLibrary",
    "Materials",
    "NoiseLibrary",
    "Plan",
    "Slice",
    "apply_batch",
    "apply_plan",
    "collate_plans",
]
