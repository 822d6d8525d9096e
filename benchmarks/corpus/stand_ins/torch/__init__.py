"""Of PyTorch: tensors on the CPU that a replay buffer makes of numpy arrays and its user turns into such again."""

import numpy as np


class Tensor:
    def __init__(self, array):
        self._array = array

    def numpy(self):
        return self._array

    def flatten(self):
        return Tensor(self._array.flatten())


class device:
    def __init__(self, name):
        self.type = getattr(name, "type", name)


class cuda:
    @staticmethod
    def is_available():
        return False


def tensor(array, device=None):
    return Tensor(np.array(array))


def as_tensor(array, device=None):
    return Tensor(np.asarray(array))
