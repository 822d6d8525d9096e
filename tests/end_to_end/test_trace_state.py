"""Changes of captured objects by a trace are seen by no other process: each traces such a function itself."""

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = """
    import json, sys
    import numpy as np
    import jitclient

    class Model:
        def __init__(self):
            self.calls, self.seen = 0, []

    model, total = Model(), 0

    def fn(x):
        global total
        model.calls += 1
        model.seen.append(x.shape)
        total += 1
        {fails}
        return x * model.calls + len(model.seen) * 10 + total * 100

    def call(size):
        try:
            return float(jitclient.jit(fn)(np.ones(size, np.float32))[0])
        except ValueError as error:
            return str(error)

    print(json.dumps(call(int(sys.argv[1]))))
"""


@pytest.mark.usefixtures("shared_daemon")
@pytest.mark.parametrize("fails", ["", "raise ValueError(str(total))"])
def test_another_shape_from_another_process(run_script: Callable[..., Any], fails: str) -> None:
    program = PROGRAM.format(fails=fails or "pass")
    expected = "1" if fails else 111.0
    assert run_script(program, "2") == expected
    assert run_script(program, "3") == expected
    assert run_script(program, "2") == expected
