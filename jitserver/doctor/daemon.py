"""The daemon: whether it answers, its devices, and its systemd units."""

from collections.abc import Iterator
from pathlib import Path

from jitserver.doctor.finding import DaemonState, Finding, verdict
from jitserver.systemd import systemctl
from jitserver.systemd.target import installed

_ACCELERATORS = {"/dev/nvidia0": "an NVIDIA GPU", "/dev/kfd": "an AMD GPU", "/dev/accel0": "an accelerator"}


def answers(state: DaemonState) -> Finding:
    """Whether a daemon runs and answers."""
    if state.status is None:
        if state.is_broken:
            return Finding("daemon", "problem", state.reason, "jitserver logs; jitserver restart")
        return Finding("daemon", "warning", f"none runs: {state.reason}", "jitserver start, or doctor --start")
    status = state.status
    return Finding("daemon", "ok", f"pid {status.pid} answers at {state.address} in {state.seconds * 1000:.0f} ms")


def devices(state: DaemonState) -> Iterator[Finding]:
    """The devices of the daemon: accelerators, if the machine has some."""
    if state.status is None:
        return
    names = state.status.devices
    unused = [what for path, what in _ACCELERATORS.items() if Path(path).exists()]
    fits = not unused or not all(name.startswith("cpu:") for name in names)
    says = ", ".join(names) + ("" if fits else f", though there is {unused[0]}")
    yield verdict(
        "devices", fits, says, "pip install 'jitserver[cuda13]' and jitserver restart; or unset JAX_PLATFORMS"
    )


def systemd(state: DaemonState) -> Finding:
    """The units of this environment, if there are any."""
    unit = installed()
    if unit is None:
        return Finding("systemd", "ok", "no unit for this environment, or no systemd; `jitserver install` makes units")
    states = systemctl.states(unit)
    says = ", ".join(f"{name} is {state}" for name, state in states.items())
    return verdict("systemd", "failed" not in states.values(), says, "jitserver logs; jitserver restart", "problem")
