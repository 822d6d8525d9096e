"""Checks of all that a daemon and its clients need: `jitserver doctor` runs them."""
