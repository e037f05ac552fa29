"""Random changes of training crops, one file a change: noise, reverberation, gain, telephone; masks of the features.

A ``Change`` is drawn for a crop as plain numbers, from the generator of its (seed, epoch, entry), and made to a batch:
in the loader worker to a batch of one, or on the training device. ``Augmenter`` holds the list of them.
"""
