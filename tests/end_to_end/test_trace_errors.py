"""A trace may raise on the daemon only, not in the process that wrote the function: the latter counts."""

from typing import Any

PROGRAM = """
    import json
    import pickle
    import warnings
    import jax.numpy as jnp
    import jitclient

    class Thing:
        factor = 2
        suspended = (number for number in (1, 2))

    NAMES = [f"A at {id(Thing)}"]

    def with_address(x):
        return x + len(NAMES) if Thing else x

    def not_held(x):
        return x + Thing.suspended.gi_running

    def only_here(x):
        return x * pickle.loads(pickle.dumps(Thing())).factor  # only this process has a module with that class

    def nowhere(x):
        raise RuntimeError("nowhere")

    found = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for fun in (FUNCTIONS):
            try:
                found.append(float(jitclient.jit(fun)(jnp.float32(3))))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
    print(json.dumps([found, [str(each.message) for each in warned]]))
"""


def test_a_function_that_only_its_own_process_can_trace_is_traced_there(own: Any) -> None:
    program = PROGRAM.replace("FUNCTIONS", "only_here, only_here, not_held, with_address")
    with own.serving():
        first, warned = own.run(program)
        after_first = own.counts()
        second, silent = own.run(program)
        after_second = own.counts()
    assert first == second == [6.0, 6.0, 3.0, 4.0]
    assert len(warned) == 1, "of what no capture holds, the report has the reason"
    assert "only_here is traced in each process: the trace on the daemon raised PicklingError" in warned[0]
    assert not silent, "the daemon remembers it"
    assert after_first["traces"] == after_second["traces"] == 2, "each with a key was tried once on the daemon"
    assert after_second["compiles"] == 3, "the programs are shared"
    assert after_second["client_traces"] > after_first["client_traces"] > 0
    assert after_second["local_runs"] == 0


def test_what_the_own_trace_raises_is_raised_whatever_the_daemon_says(own: Any) -> None:
    program = PROGRAM.replace("FUNCTIONS", "nowhere, nowhere")
    with own.serving():
        for _ in range(2):
            assert own.run(program) == [["RuntimeError: nowhere"] * 2, []]
        counted = own.counts()
    assert [counted[name] for name in ("compiles", "client_traces", "local_runs")] == [0] * 3


def test_the_log_of_the_daemon_has_nothing_that_a_trace_printed(own: Any, tmp_path: Any) -> None:
    script = """
        import json
        import jax.numpy as jnp
        import jitclient

        def prints(x):
            print("said by what was traced")
            return x

        def fails(x):
            print("said in vain")
            raise ValueError

        jitclient.jit(prints)(jnp.ones(1))
        try:
            jitclient.jit(fails)(jnp.ones(1))
        except ValueError:
            pass
        print(json.dumps(None))
    """
    log = tmp_path / "log"
    with own.serving() as daemon:
        own.run(script)
        with open(f"/proc/{daemon.pid}/fd/1") as output:
            log.write_text(output.read())
    said = log.read_text()
    assert "serving at" in said
    assert "said by what was traced" not in said
    assert "said in vain" not in said
