"""The lab's cache: programs that the machines of a group share, on any storage that fsspec reads."""
