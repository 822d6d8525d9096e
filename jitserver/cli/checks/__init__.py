"""The checks of `jitserver doctor`: what a daemon and its clients need."""
