"""Programs for eight devices: each case gives what plain JAX gives, in the same places, in fresh processes.

The hash seeds of two clients differ. The program of neither is made from its own trace alone or runs in its process;
for the second one, the daemon traces nothing. Of cases that a program lists as COLD, some traces raise, in all three:
what only compiling shows, clients find out by themselves, as plain JAX does.
"""

from collections.abc import Callable
from typing import Any

import pytest

from .processes import MESHES, Outcomes, cases, named, run

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
COLD = named(MESHES, "COLD")


@pytest.fixture(scope="module")
def answers(
    new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Outcomes, Outcomes, Outcomes]:
    """The outcomes of plain JAX, and those of two clients."""
    address = f"unix:{tmp_path_factory.mktemp('d')}/s"
    with new_daemon(address, env={**EIGHT, "PYTHONHASHSEED": "100"}):
        first, second = (run("served", seed, MESHES, **EIGHT, JITSERVER_ADDRESS=address) for seed in (1, 2))
    return run("plain", 0, MESHES, **EIGHT), first, second


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first has all programs run three times
@pytest.mark.parametrize("case", cases(MESHES))
def test_is_what_plain_jax_gives(case: str, answers: tuple[Outcomes, Outcomes, Outcomes]) -> None:
    plain, first, second = (outcomes[case] for outcomes in answers)
    assert "returns" in plain, plain
    assert first.get("returns") == plain["returns"], first
    assert second.get("returns") == plain["returns"], second
    if case not in COLD:
        assert first["ran_here"] == second["ran_here"] == 0
        assert first["traced_here"] == second["traced_here"] == second["traced_there"] == 0
