"""The devices of this daemon: arrays on them, scratch memory, programs over several devices, and health checks."""
