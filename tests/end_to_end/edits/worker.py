"""Runs programs, each in a process forked for it alone, through jitclient or through plain jax. See `test_edits.py`.

A request is a line of JSON on stdin, its answer a line on stdout. Nothing of a program stays from one to the next.
"""

import importlib
import json
import os
import sys
import traceback
import types
from pathlib import Path


def main():
    if "--with-jax" in sys.argv:
        import jax.numpy  # noqa: F401  (no backend starts before the fork)
    import jitclient.calls.decorator
    import jitclient.session.process  # noqa: F401

    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.write(writer, json.dumps(answer(json.loads(line))).encode())
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as pipe:
            print(pipe.read().decode() or '"the process died"', flush=True)
        os.waitpid(child, 0)


def answer(request):
    """The value as [dtype, bytes in hex], or the traceback of what went wrong."""
    try:
        return run(**request)
    except BaseException:
        return traceback.format_exc()


def run(folder, jitted_by, as_main, run_first):
    import numpy as np

    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    fn = run_file(Path(folder) / "program.py", as_main).fn
    x = np.array([0.5, -1.5, 2.0, 3.25], np.float32)
    if run_first:
        fn(x)
    value = np.asarray(importlib.import_module(jitted_by).jit(fn)(x))
    return [str(value.dtype), value.tobytes().hex()]


def run_file(path, as_main):
    module = types.ModuleType("__main__" if as_main else "program")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), vars(module))
    return module


if __name__ == "__main__":
    main()
