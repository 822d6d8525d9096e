"""The system's template: a daemon for a user, run as that user."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

from harness import (
    User,
    as_root,
    copy_of_environment,
    failed,
    is_private_socket,
    kill,
    parsed,
    systemctl,
    uid_of,
    until,
)

u, v = User("u", manager=False), User("v", manager=False)
etc = Path("/etc/systemd/system")
digest = u.run(
    sys.executable, "-c", "from jitclient.core.directories import environment_digest; print(environment_digest())"
).stdout.strip()
socket, service = f"jitserver-{digest}@u.socket", f"jitserver-{digest}@u.service"
socket_file = Path(f"/run/jitserver/{digest}/u.sock")


def main_pid() -> int:
    return int(systemctl("show", "--value", "-p", "MainPID", service))


def templates() -> list[str]:
    return sorted(path.name for path in etc.glob("jitserver-*"))


def check_root_is_refused() -> None:
    failed(as_root("install", "--system", "root"), 1, "never runs as root")
    assert templates() == []


def check_a_user_who_cannot_run_the_interpreter_is_refused() -> None:
    python = copy_of_environment(Path("/srv/closed"))
    Path("/srv/closed").chmod(0o700)
    failed(as_root("install", "--system", "u", python=python), 1, "u cannot run /srv/closed")
    assert templates() == []


def check_install_writes_a_template() -> None:
    done = parsed(as_root("install", "--system", "u", "--json"))
    assert (done["result"], done["socket"], done["service"]) == ("installed", socket, service)
    assert templates() == [f"jitserver-{digest}@.service", f"jitserver-{digest}@.socket"]
    assert parsed(as_root("install", "--system", "u", "--json"))["result"] == "unchanged"


def check_the_socket_waits_and_is_the_users_alone() -> None:
    assert systemctl("is-active", socket) == "active"
    assert systemctl("is-enabled", socket) == "enabled"
    assert systemctl("is-active", service) == "inactive"
    assert is_private_socket(socket_file, u.uid)
    assert stat.S_IMODE(socket_file.parent.stat().st_mode) == 0o755


def check_the_first_call_starts_the_daemon_as_the_user() -> None:
    u.call()
    status = u.json("status")
    assert status["pid"] == main_pid()
    assert status["address"] == f"unix:{socket_file}"
    assert uid_of(main_pid()) == u.uid


def check_another_user_cannot_reach_it() -> None:
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket_file)!r})"
    assert "PermissionError" in v.run(sys.executable, "-c", code).stderr
    assert u.run(sys.executable, "-c", code).returncode == 0
    assert v.jitserver("status").returncode == 3


def check_kill_9_brings_it_back() -> None:
    pid = main_pid()
    kill(pid, signal.SIGKILL)
    u.call()
    assert main_pid() not in (0, pid)


def check_the_user_is_told_to_ask_root() -> None:
    pid = main_pid()
    failed(u.jitserver("stop"), 1, f"sudo systemctl stop {socket} {service}")
    assert main_pid() == pid


def check_logs_come_from_the_journal() -> None:
    logs = u.json("logs")
    assert logs["unit"] == service
    assert any("serving at" in line for line in logs["lines"]), logs


def check_exposure_is_low() -> None:
    shown = subprocess.run(["systemd-analyze", "security", "--no-pager", service], capture_output=True, text=True)
    score = float(shown.stdout.rpartition("exposure level for ")[2].split()[1])
    assert score <= 2.0, shown.stdout


def check_users_share_the_template_and_nothing_else() -> None:
    assert parsed(as_root("install", "--system", "v", "--json"))["result"] == "installed"
    v.call()
    other = v.json("status")
    assert uid_of(other["pid"]) == v.uid
    assert other["pid"] != main_pid()


def check_uninstall_leaves_the_other_user_alone() -> None:
    pid = main_pid()
    done = parsed(as_root("uninstall", "--system", "u", "--json"))
    assert done["result"] == "uninstalled"
    assert done["kept_for"] == [f"jitserver-{digest}@v.socket"]
    assert not Path(f"/proc/{pid}").exists()
    assert not socket_file.exists()
    assert u.jitserver("status").returncode == 3
    v.call()


def check_the_last_uninstall_leaves_nothing() -> None:
    pid = v.json("status")["pid"]
    assert parsed(as_root("uninstall", "--system", "v", "--json"))["kept_for"] == []
    until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon to end")
    assert templates() == []
    assert not list((etc / "sockets.target.wants").glob("jitserver*"))
    assert not socket_file.parent.exists()
    assert parsed(as_root("uninstall", "--system", "v", "--json"))["result"] == "nothing to uninstall"
