"""The devices of this daemon: arrays on them, scratch memory, programs that need several of them, and their health."""
