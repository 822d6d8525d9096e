"""Counterpart of Flax's `nnx.jit` that runs functions on the daemon."""

from jitclient.nnx.jitted import jit as jit
