def __getattr__(name):
    if name.startswith("by_"):
        factor = float(name.removeprefix("by_"))
        return lambda x: x * factor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
