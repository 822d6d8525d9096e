"""The devices of this daemon: arrays on them, programs over several devices, and health checks."""
