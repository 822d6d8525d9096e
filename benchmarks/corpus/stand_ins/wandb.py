"""Weights & Biases, switched off."""


def init(**settings): ...


def log(values): ...
