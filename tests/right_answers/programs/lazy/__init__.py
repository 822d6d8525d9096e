import importlib

_HOMES = {"k": ".h", "SIZE": ".h"}


def __getattr__(name):
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(name)
