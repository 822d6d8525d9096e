"""A daemon on another machine: what `jitserver doctor` finds there."""

import json
import subprocess
from collections.abc import Iterator

from jitclient.wire.address import Address
from jitserver.doctor.finding import DaemonState, Finding

_SECONDS = 300.0


def there(state: DaemonState) -> Iterator[Finding]:
    """All checks, on the daemon's machine."""
    far = state.address
    assert not isinstance(far, Address)
    again = far.shown("jitserver", "doctor")
    try:
        done = subprocess.run(
            far.command("jitserver", "doctor", "--json"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Finding("there", "problem", f"no answer within {_SECONDS:.0f} s", again)
        return
    try:
        checks = json.loads(done.stdout[done.stdout.find("{\n") :])["checks"]  # behind what the shell there may print
    except ValueError:
        yield Finding("there", "problem", done.stderr.strip() or f"it ended with status {done.returncode}", again)
        return
    for found in checks:
        yield Finding(f"there: {found['check']}", found["level"], found["says"], found["do"])
