"""Changes by name, in the order in which they are made; listed without importing torch."""

from __future__ import annotations

from svtoolkit.registry import Registry, Row

AUGMENTATIONS = Registry(
    "augmentation",
    "svtoolkit.augmentations",
    {
        "reverberation": Row(
            "svtoolkit.augmentation.reverberation:Reverberation", help="room impulse responses (RIRs)"
        ),
        "noise": Row("svtoolkit.augmentation.noise:Noise", help="noise, music and babble at a signal-to-noise ratio"),
        "gain": Row("svtoolkit.augmentation.gain:Gain", help="another level"),
        "telephone": Row("svtoolkit.augmentation.telephone:Telephone", help="300 to 3400 Hz, G.711 codes at 8 kHz"),
    },
)
"""The four that have keys of their own in the group ``augment`` have no settings here; all others are added with theirs
(see ``build_augmenter``)."""
