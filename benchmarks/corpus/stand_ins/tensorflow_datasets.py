"""Of TensorFlow Datasets: `load` of two small data sets of ours, and the chain of methods that iterates over one."""

import itertools

import numpy as np
from digits import digits

_VERSE = "First keeper:\nThe lamp is lit, the night is long,\nand none may sleep who keep the song.\n\n"


class _Dataset:
    def __init__(self, examples):
        self._examples = examples

    def as_numpy_iterator(self):
        return iter(self._examples)

    def concatenate(self, other):
        return _Dataset([*self._examples, *other._examples])

    def shuffle(self, buffer_size, seed=None):
        order = np.random.default_rng(seed).permutation(len(self._examples))
        return _Dataset([self._examples[i] for i in order])

    def batch(self, size):
        batches = [self._examples[i : i + size] for i in range(0, len(self._examples) - size + 1, size)]
        return _Dataset([{name: np.stack([each[name] for each in batch]) for name in batch[0]} for batch in batches])

    def prefetch(self, buffer_size):
        return self

    def repeat(self):
        return _Dataset(itertools.cycle(self._examples))


def load(name, split=None):
    if name == "tiny_shakespeare":
        return {part: _Dataset([{"text": (_VERSE * 40).encode()}]) for part in ("train", "test", "validation")}
    assert name == "binarized_mnist", name
    images, _ = digits(1024, seed=len(split))
    return _Dataset([{"image": (image > 100)[..., None]} for image in images])
