"""The command `jitserver demo`: runs a program in two fresh processes, and shows the work that the second one saved."""

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from jitclient.session.launch import IDLE_EXIT_SECONDS
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, json_option, print_table, report, seconds, selected_address, wants_json
from jitserver.cli.entries import listed
from jitserver.cli.lifecycle import launched

PROGRAM = Path(__file__).parent / "demos" / "train.py"
_COUNTED = ("captures_loaded", "traces", "compiles")


@click.command()
@click.option("--layers", default=12, show_default=True, help="Layers of the transformer.")
@click.option("--steps", default=10, show_default=True, help="Training steps in each process.")
@json_option
def demo(layers: int, steps: int) -> None:
    """Show how much a second run saves.

    Trains a small transformer in two fresh processes, one after the other.
    """
    address = selected_address()
    pid = launched(address, IDLE_EXIT_SECONDS)
    echo = (lambda text: None) if wants_json() else click.echo
    echo(f"daemon:  {'started' if pid else 'runs already'} at {address}")
    echo(f"program: {PROGRAM}, {layers} layers; new to the daemon each time you run this demo\n")
    salt = secrets.randbelow(1 << 30)
    runs = []
    for number in ("first", "second"):
        echo(f"{number} process ...")
        runs.append(_run(salt, layers, steps))
    result = _result(runs)
    report(result, lambda: _print(result, runs))
    if runs[1]["traces"] or runs[1]["compiles"]:
        raise click.ClickException("the second process should have found its program compiled")


def _run(salt: int, layers: int, steps: int) -> dict[str, Any]:
    """Run the program in a fresh process; return its own times, and the changes of the daemon's counters."""
    before: Status = ask(Verb.STATUS, None, Status)
    start = time.time()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(salt), str(layers), str(steps)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise click.ClickException(f"{PROGRAM} failed:\n{done.stderr}")
    after: Status = ask(Verb.STATUS, None, Status)
    times = json.loads(done.stdout.splitlines()[-1])
    return {
        "imports": times["imported"] - start,
        "setup": times["ready"] - times["imported"],
        "first_step": times["first"] - times["ready"],
        "to_first_result": times["first"] - start,
        "later_steps": times["end"] - times["first"],
        "losses": times["losses"],
        "device": after.devices[0],
        **{name: getattr(after, name) - getattr(before, name) for name in _COUNTED},
    }


def _result(runs: list[dict[str, Any]]) -> dict[str, Any]:
    made = max(listed("train_step"), key=lambda entry: entry.created)
    return {
        "runs": runs,
        "made_in": made.seconds,
        "key": made.key,
        "speedup": runs[0]["to_first_result"] / runs[1]["to_first_result"],
        "speedup_first_step": runs[0]["first_step"] / runs[1]["first_step"],
        "same_losses": runs[0]["losses"] == runs[1]["losses"],
        "loss_difference": max(abs(a - b) / abs(a) for a, b in zip(*(run["losses"] for run in runs), strict=True)),
    }


def _print(result: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    made, (first, second) = result["made_in"], runs
    tracing = sum(made[part] for part in ("load", "trace", "lower"))
    rest = max(0.0, first["first_step"] - tracing - made["compile"])
    rows = [
        ["Python and imports", seconds(first["imports"]), seconds(second["imports"])],
        ["data and initial parameters", seconds(first["setup"]), seconds(second["setup"])],
        ["first step: trace and lower", seconds(tracing), _none(second["traces"])],
        ["first step: compile", seconds(made["compile"]), _none(second["compiles"])],
        ["first step: the rest, one step run", seconds(rest), seconds(second["first_step"])],
        ["time to the first result", seconds(first["to_first_result"]), seconds(second["to_first_result"])],
        ["loss, first and last step", *(f"{run['losses'][0]:.4f} {run['losses'][-1]:.4f}" for run in runs)],
    ]
    print_table(["spent on", "first process", "second process"], rows)
    click.echo(f"first result {result['speedup']:.1f} times sooner")
    click.echo(f"first step {result['speedup_first_step']:.0f} times sooner")
    click.echo(_comparison(result, runs[0]["device"]))
    click.echo(f"\nnext: jitserver cache show {result['key'][:12]}")


def _comparison(result: dict[str, Any], device: str) -> str:
    if result["same_losses"]:
        return "the losses are the same, bit for bit"
    if device.startswith("cpu"):
        return "the losses DIFFER"
    # Atomic additions have no fixed order there.
    return f"the losses differ by up to {result['loss_difference']:.0e} of their value, as two runs on a GPU may"


def _none(count: int) -> str:
    return "none" if count == 0 else f"{count} times"
