"""The checks of `jitserver doctor` of the conditions that a daemon and its clients require."""
