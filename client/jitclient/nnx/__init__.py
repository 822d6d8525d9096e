"""Flax's `nnx.jit` on the daemon."""

from jitclient.nnx.jitted import jit as jit
