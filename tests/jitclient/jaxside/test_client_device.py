"""The client's own jax computes on the CPU, unless it has begun elsewhere or the user forbids the change."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.directories import devices_file
from jitclient.core.settings import settings
from jitclient.jaxside import client_device
from jitclient.session import handshake
from jitclient.wire.messages import Welcome

DECORATE = "jitclient.jit(lambda x: x + 1)"
ORDERS = {
    "no decorator": "import jitclient, jax\n",
    "jax first": f"import jax, jitclient\n{DECORATE}\n",
    "jitclient first": f"import jitclient\n{DECORATE}\nimport jax\n",
    "jax last": f"import jitclient\nstep = {DECORATE}\nimport sys\nassert 'jax' not in sys.modules\nimport jax\n",
}
NOWHERE = {"JITSERVER_FALLBACK": "local", "JITSERVER_ADDRESS": "unix:/nowhere/d.sock"}
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
    begun = f"import jax\njax.numpy.zeros(1)\nimport jitclient\n{DECORATE}\n"
    assert run_script(begun + SAY, env={"JAX_PLATFORMS": ""}) in (None, "")


def test_what_a_module_computes_before_the_first_decorator_is_on_the_cpu(run_script: Callable[..., Any]) -> None:
    early = "import jitclient, jax\njax.devices(), jax.random.key(0)\n"
    assert run_script(early + DECORATE + "\n" + SAY, env={"JAX_PLATFORMS": ""}) == "cpu"


@pytest.mark.parametrize("first", ["jax, ", ""])
def test_another_import_than_the_programs_leaves_it_as_it_is(run_script: Callable[..., Any], first: str) -> None:
    plugin = f"import {first}jitclient\nfrom jitclient.jaxside import client_device\nclient_device.defer()\n"
    program = """
        import json, jax
        before = jax.config.jax_platforms
        import jitclient
        jitclient.jit
        print(json.dumps([before, jax.config.jax_platforms]))
    """
    env = {"JAX_PLATFORMS": "cuda,cpu"}
    assert run_script(plugin + textwrap.dedent(program), env=env) == ["cuda,cpu", "cpu"]


def test_a_program_may_decide_after_the_import(run_script: Callable[..., Any]) -> None:
    late = "import os, jitclient\nos.environ['JITSERVER_CLIENT_DEVICE'] = 'keep'\nimport jax\n"
    assert run_script(late + SAY, env={"JAX_PLATFORMS": "cuda,cpu"}) == "cuda,cpu"


def test_without_a_daemon_this_process_has_the_accelerator_again(run_script: Callable[..., Any]) -> None:
    program = """
        import json, warnings, jax, jitclient

        step = jitclient.jit(lambda x: x + 1)
        before = jax.config.jax_platforms
        with warnings.catch_warnings(record=True) as caught:
            assert step(1).item() == 2
        print(json.dumps([before, jax.config.jax_platforms, str(caught[0].message)]))
    """
    before, after, warning = run_script(program, env={"JAX_PLATFORMS": "", **NOWHERE})
    assert before == "cpu"
    assert not after
    assert "runs in this process, on the cpu: " in warning


def test_what_the_program_has_configured_since_stays(run_script: Callable[..., Any]) -> None:
    program = """
        import json, warnings, jitclient, jax

        jax.config.update("jax_platforms", "cpu")
        with warnings.catch_warnings(record=True):
            assert jitclient.jit(lambda x: x + 1)(1).item() == 2
        print(json.dumps(jax.config.jax_platforms))
    """
    assert run_script(program, env={"JAX_PLATFORMS": "", **NOWHERE}) == "cpu"


def test_so_it_has_if_it_imports_jax_only_then(run_script: Callable[..., Any]) -> None:
    program = """
        import json, sys, warnings, jitclient

        step = jitclient.jit(lambda x: x + 1)
        assert "jax" not in sys.modules
        with warnings.catch_warnings(record=True):
            assert step(1).item() == 2
        print(json.dumps(sys.modules["jax"].config.jax_platforms))
    """
    assert not run_script(program, env={"JAX_PLATFORMS": "", **NOWHERE})


@pytest.mark.parametrize("platform", ["cuda", "no_such"])
@pytest.mark.parametrize("first", ["import jax", ""])
def test_a_jax_that_cannot_start_raises_its_own_error(
    run_script: Callable[..., Any], platform: str, first: str
) -> None:
    program = f"""
        {first}
        import json, warnings, jitclient

        step = jitclient.jit(lambda x: x + 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                step(1)
            except Exception as error:
                ours = repr(error)
        import jax
        try:
            jax.jit(lambda x: x + 1)(1)
        except Exception as error:
            print(json.dumps([ours, repr(error), [str(one.message) for one in caught]]))
    """
    ours, plain, (warning,) = run_script(program, env={"JAX_PLATFORMS": platform, **NOWHERE})
    assert ours == plain
    assert "runs in this process: " in warning
    assert "/nowhere" in warning


def test_it_says_so_once_and_only_of_an_accelerator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for state, what in (
        ("is_pinned", "the daemon uses the accelerator (gpu)"),
        ("is_late", "holds memory of the accelerator (gpu)"),
    ):
        monkeypatch.setattr(client_device, "_state", client_device._State())
        setattr(client_device._state, state, True)
        for platform in ("cpu", "gpu", "gpu"):
            client_device.notify_once(platform)
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert what in said[0]
        assert "JITSERVER_CLIENT_DEVICE=keep" in said[0]


@pytest.mark.parametrize(
    ("visible", "env", "plugin", "count"),
    [
        ("0,1", {}, True, 2),
        ("GPU-1, GPU-2 ,GPU-3", {}, True, 3),
        ("1", {}, True, 1),
        ("", {}, True, 1),
        ("0,1", {}, False, 1),
        ("0,1", {"JAX_NUM_CPU_DEVICES": "4"}, True, 4),
        ("0,1", {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, True, 5),
        ("0,1", {"JAX_PLATFORMS": "cpu"}, True, 1),
    ],
)
def test_the_cpu_has_as_many_devices_as_there_are_gpus(
    run_script: Callable[..., Any], tmp_path: Path, visible: str, env: dict[str, str], plugin: bool, count: int
) -> None:
    described = tmp_path / "plugins" / "no_backend-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Name: no-backend\nVersion: 1\n")
    if plugin:
        (described / "entry_points.txt").write_text("[jax_plugins]\nno_backend = no_backend\n")
        (described.parent / "no_backend.py").write_text("def initialize(): pass\n")
    program = """
        import json, jitclient, jax

        before = len(jax.devices())
        print(json.dumps([before, dict(jax.make_mesh((before,), ("d",)).shape)]))
    """
    env = {"JAX_PLATFORMS": "", "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": str(described.parent), **env}
    assert run_script(program, env=env) == [count, {"d": count}]


@pytest.mark.parametrize(
    ("platform", "env", "count"),
    [
        ("tpu", {}, 4),
        ("cpu", {}, 4),
        ("tpu", {"JITSERVER_ADDRESS": "ssh://other"}, 1),
        ("tpu", {"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ("tpu", {"JITSERVER_CLIENT_DEVICE": "keep", "JAX_PLATFORMS": "cpu"}, 1),
    ],
)
def test_a_far_daemons_devices_are_counted_from_the_second_process(
    run_script: Callable[..., Any], tmp_path: Path, platform: str, env: dict[str, str], count: int
) -> None:
    far = {"JITSERVER_ADDRESS": "ssh://far", "JITSERVER_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": ""}
    first = """
        import json
        from jitclient.core.settings import settings
        from jitclient.session.handshake import _remember_devices
        from jitclient.wire.messages import Welcome

        for devices in (2, 4):  # another machine has the address
            welcome = Welcome(1, "", "", {}, PLATFORM, 1, b"", False, 0, 0, devices=devices)
            _remember_devices(settings(), welcome)
        print(json.dumps(None))
    """
    run_script(first.replace("PLATFORM", repr(platform)), env=far)
    second = """
        import json, os, jitclient, jax
        number = len(jax.devices())
        os.environ["JITSERVER_TIMEOUT"] = "7"
        from jitclient.core.settings import settings
        assert settings().timeout == 7, "nothing has frozen the settings"
        print(json.dumps([number, dict(jax.make_mesh((number,), ("d",)).shape)]))
    """
    assert run_script(second, env={**far, **env}) == [count, {"d": count}]


def test_a_daemon_on_this_cpu_is_not_counted() -> None:
    welcome = Welcome(1, "", "", {}, "cpu", 1, b"", False, 0, 0, devices=4)
    handshake._remember_devices(settings(), welcome)
    assert not devices_file(settings()).exists()
