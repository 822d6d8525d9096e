"""The client's own jax computes on the CPU, unless it has begun elsewhere or is told to stay as it is."""

from collections.abc import Callable
from typing import Any

import pytest

from jitclient.local_jax import client_device

DECORATE = "jitclient.jit(lambda x: x + 1)"
ORDERS = {
    "jax first": f"import jax, jitclient\n{DECORATE}\n",
    "jitclient first": f"import jitclient\n{DECORATE}\nimport jax\n",
    "jax last": f"import jitclient\nstep = {DECORATE}\nimport sys\nassert 'jax' not in sys.modules\nimport jax\n",
}
SAY = "import json\nprint(json.dumps(jax.config.jax_platforms))"


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_it_is_set_to_the_cpu_whichever_is_imported_first(run_script: Callable[..., Any], order: str) -> None:
    assert run_script(order + SAY, env={"JAX_PLATFORMS": ""}) == "cpu"
    assert run_script(order + SAY, env={"JAX_PLATFORMS": "cuda,cpu"}) == "cpu"


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_keep_leaves_it_as_it_is(run_script: Callable[..., Any], order: str) -> None:
    env = {"JAX_PLATFORMS": "cuda,cpu", "JITSERVER_CLIENT_DEVICE": "keep"}
    assert run_script(order + SAY, env=env) == "cuda,cpu"


def test_a_jax_that_computes_already_is_left_alone(run_script: Callable[..., Any]) -> None:
    begun = f"import jax, jitclient\njax.numpy.zeros(1)\n{DECORATE}\n"
    assert run_script(begun + SAY, env={"JAX_PLATFORMS": ""}) in (None, "")


def test_an_import_alone_changes_nothing(run_script: Callable[..., Any]) -> None:
    assert run_script(f"import jitclient, jax\njitclient.Array\n{SAY}", env={"JAX_PLATFORMS": ""}) in (None, "")


def test_without_a_daemon_this_process_has_the_accelerator_again(run_script: Callable[..., Any]) -> None:
    program = """
        import json, warnings, jax, jitclient

        step = jitclient.jit(lambda x: x + 1)
        before = jax.config.jax_platforms
        with warnings.catch_warnings(record=True) as caught:
            assert step(1).item() == 2
        print(json.dumps([before, jax.config.jax_platforms, str(caught[0].message)]))
    """
    env = {"JAX_PLATFORMS": "", "JITSERVER_FALLBACK": "local", "JITSERVER_ADDRESS": "unix:/nowhere/d.sock"}
    before, after, warning = run_script(program, env=env)
    assert before == "cpu"
    assert not after
    assert "runs in this process, on the cpu: " in warning


def test_it_says_so_once_and_only_of_an_accelerator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_device, "_state", client_device._State(is_asked=True, is_pinned=True))
    for platform in ("cpu", "gpu", "gpu"):
        client_device.say_so(platform)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "the daemon uses the gpu" in said[0]
    assert "JITSERVER_CLIENT_DEVICE=keep" in said[0]
