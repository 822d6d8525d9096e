"""Images that stand in for handwritten digits: a bright bar whose place says which digit it is, in some noise."""

import gzip
import struct

import numpy as np

_SIDE = 28


def digits(count, seed=0):
    """Images (count, 28, 28) of uint8, and their labels (count,)."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = random.integers(0, 40, (count, _SIDE, _SIDE)) * (random.random((count, _SIDE, _SIDE)) < 0.2)
    for image, label in zip(images, labels, strict=True):
        image[4:24, 2 * label + 4 : 2 * label + 7] = 220
    return images.astype(np.uint8), labels


def write_images(path, count=512):
    """Write a file as MNIST's images come."""
    images, _ = digits(count)
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(">IIII", 2051, count, _SIDE, _SIDE) + images.tobytes())
