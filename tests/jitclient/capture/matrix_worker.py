"""Run in a fresh process: captures or loads all kinds of a folder. See `test_matrix.py`."""

import argparse
import importlib.util
import json
import sys
import traceback
import types
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["capture", "load"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    for flag in ("--as-main", "--backwards", "--run-first", "--values"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    report = capture_all(options) if options.mode == "capture" else load_all(options)
    options.out.mkdir(exist_ok=True)
    (options.out / "report.json").write_text(json.dumps(report))


def capture_all(options):
    kinds = sorted(path.name for path in options.folder.iterdir())
    if options.backwards:
        import optax  # noqa: F401
        from flax import nnx  # noqa: F401

        kinds.reverse()
    sys.path[:0] = [str(options.folder / kind) for kind in kinds]
    report = {}
    for kind in kinds:
        try:
            report[kind] = capture_one(kind, options)
        except Exception:
            report[kind] = {"error": traceback.format_exc()}
    return report


def capture_one(kind, options):
    from jitclient.capture.dump import capture
    from jitclient.capture.explain.parts import parts_of

    module = run_file(options.folder / kind / f"k_{kind}.py", options.as_main)
    fn = module.fn
    if options.run_first:
        fn(argument())
    made = capture(fn)
    assert made.unchanged(), "something changed without being touched"
    parts = {part.label: part.digest.hex() for part in parts_of(made.payload, made.locations)}
    if options.values:
        options.out.mkdir(exist_ok=True)
        (options.out / f"{kind}.payload").write_bytes(made.payload)
        (options.out / f"{kind}.locations").write_bytes(made.locations)
        return {"key": made.key, "parts": parts, "value": value_of(fn)}
    return {"key": made.key, "parts": parts}


def run_file(path, as_main):
    if not as_main:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), vars(module))
    return module


def load_all(options):
    from jitclient.capture.load import load

    report = {}
    for path in sorted(options.folder.glob("*.payload")):
        try:
            loaded = load(path.read_bytes(), path.with_suffix(".locations").read_bytes())
            report[path.stem] = {"value": value_of(loaded.fn)}
        except Exception:
            report[path.stem] = {"error": traceback.format_exc()}
    report["modules"] = [n for n in sys.modules if n.startswith(("um_", "k_"))]
    return report


def argument():
    import jax.numpy as jnp

    return jnp.arange(4.0)


def value_of(fn):
    import numpy as np

    value = np.asarray(fn(argument()))
    return [str(value.dtype), list(value.shape), value.astype(float).ravel().tolist()]


if __name__ == "__main__":
    main()
