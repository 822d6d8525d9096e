"""The design that tutorials show: an rpyc server, functions and arguments cloudpickled, programs found by those bytes.

Everything of rpyc's is as it comes: TCP, compression above 3,000 bytes, 30 s for an answer. Results return as numpy
arrays, which pickle faster than JAX's.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import FINDS_BENCHMARKS, environment, running
from benchmarks.rivals import Caller

NAME = "tutorial"
NEEDS = ("cloudpickle", "jax", "rpyc")
_PORT = "BENCHMARKS_TUTORIAL_PORT"


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """The server, on a free port of this machine."""
    file = folder / "port"
    with running(["-m", __name__, str(file)], environment(folder, **FINDS_BENCHMARKS), folder, file.exists):
        yield {_PORT: file.read_text()}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client; the functions it sends travel by value, as a program's own do."""
    import cloudpickle
    import rpyc

    connection = rpyc.connect("127.0.0.1", int(os.environ[_PORT]))

    def jit(fun: Callable[..., Any]) -> Callable[..., Any]:
        for name in {getattr(each, "__module__", "") for each in (fun, getattr(fun, "func", fun))}:
            if name.startswith("benchmarks."):
                cloudpickle.register_pickle_by_value(sys.modules[name])
        function = cloudpickle.dumps(fun)
        return lambda *args: cloudpickle.loads(connection.root.run(function, cloudpickle.dumps(args)))

    yield Caller(jit)
    connection.close()


def main(file: Path) -> None:
    """Runs the server; `file` says where once it can be connected to."""
    import cloudpickle
    import jax
    import numpy as np
    import rpyc
    from rpyc.utils.server import ThreadedServer

    programs: dict[bytes, Callable[..., Any]] = {}

    class Jit(rpyc.Service):
        def exposed_run(self, function: bytes, arguments: bytes) -> bytes:
            if function not in programs:
                programs[function] = jax.jit(cloudpickle.loads(function))
            result = programs[function](*cloudpickle.loads(arguments))
            return cloudpickle.dumps(jax.tree.map(np.asarray, result))

    server = ThreadedServer(Jit, hostname="127.0.0.1", port=0)
    fresh = file.with_suffix(".new")
    fresh.write_text(str(server.port))
    fresh.rename(file)
    server.start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
