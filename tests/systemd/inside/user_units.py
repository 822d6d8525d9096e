"""User units, from the first `install` to the last `uninstall`."""

import signal
import sys
from pathlib import Path

from harness import User, as_root, copy_of_environment, failed, is_private_socket, kill, parsed, until, variables_of

u = User("u", manager=True)
stranger = User("stranger", manager=False)
digest = u.run(
    sys.executable, "-c", "from jitclient.core.directories import environment_digest; print(environment_digest())"
).stdout.strip()
units = u.home / ".config/systemd/user"
socket, service = f"jitserver-{digest}.socket", f"jitserver-{digest}.service"
socket_file = u.runtime / "jitserver" / f"{digest}.sock"

# Another environment, whose every name is a trap: in its path, and in a setting that the CPU ignores.
ODD_SETTING = "--one='a b' \"two\" 100% %h $HOME ${HOME} back\\slash ;#"
odd_python = copy_of_environment(u.home / "an odd 100% %h $HOME ${HOME} ; #one=1")


def main_pid() -> int:
    return int(u.show(service, "MainPID"))


def check_dry_run_changes_nothing() -> None:
    planned = u.json("install", "--dry-run")["units"]
    assert set(planned) == {str(units / socket), str(units / service)}
    assert f"ListenStream=%t/jitserver/{digest}.sock" in planned[str(units / socket)]
    assert not units.exists()


def check_uninstall_says_that_there_is_nothing() -> None:
    assert u.json("uninstall")["result"] == "nothing to uninstall"


def check_errors_are_typed_and_say_what_to_do() -> None:
    failed(stranger.jitserver("install"), 1, "no systemd runs for this user", "loginctl enable-linger stranger")
    failed(u.jitserver("install", "--system", "u"), 1, "sudo jitserver")
    failed(u.jitserver("install", JITSERVER_ADDRESS="unix:/tmp/x.sock"), 1, "JITSERVER_ADDRESS", "Unset it")
    failed(
        u.jitserver("install", XDG_CONFIG_HOME=str(u.home / "other")), 1, "does not read units from", "XDG_CONFIG_HOME"
    )
    assert not [path for path in (u.home / "other").rglob("*") if path.is_file()]
    failed(as_root("install", "--system", "no-such-user"), 1, "there is no user")


def check_install_takes_over_from_a_daemon_that_was_started_by_hand() -> None:
    by_hand = u.json("start")
    assert "unit" not in by_hand
    done = u.json("install")
    assert done["result"] == "installed"
    assert not Path(f"/proc/{by_hand['pid']}").exists()
    assert done["digest"] == digest
    assert sorted(path.name for path in units.glob("jitserver*")) == [service, socket]


def check_the_socket_waits_and_the_service_does_not_run() -> None:
    assert u.systemctl("is-active", socket) == "active"
    assert u.systemctl("is-enabled", socket) == "enabled"
    assert u.systemctl("is-active", service) == "inactive"
    assert is_private_socket(socket_file, u.uid)


def check_one_can_tell_that_it_waits() -> None:
    code = "from jitserver.cli.systemd import systemctl, target; print(systemctl.waits(target.installed()))"
    assert u.run(sys.executable, "-c", code).stdout == "True\n"
    assert u.systemctl("is-active", service) == "inactive"


def check_the_first_call_starts_the_daemon() -> None:
    u.call()
    assert u.systemctl("is-active", service) == "active"
    status = u.json("status")
    assert status["pid"] == main_pid()
    assert status["address"] == f"unix:{socket_file}"
    assert status["misses"] == 1
    code = "from jitserver.cli.systemd import systemctl, target; print(systemctl.waits(target.installed()))"
    assert u.run(sys.executable, "-c", code).stdout == "False\n"


def check_install_again_changes_nothing() -> None:
    pid = main_pid()
    assert u.json("install")["result"] == "unchanged"
    assert main_pid() == pid


def check_start_finds_it_running() -> None:
    pid = main_pid()
    assert u.json("start")["result"] == "running already"
    assert main_pid() == pid


def check_kill_9_brings_it_back() -> None:
    pid = main_pid()
    kill(pid, signal.SIGKILL)
    u.call()
    assert main_pid() not in (0, pid)
    assert u.systemctl("is-active", service) == "active"


def check_a_client_that_ends_it_does_not_end_it_for_good() -> None:
    pid = main_pid()
    code = "from jitserver.cli.common import ask; from jitclient.wire.messages import Verb;"
    done = u.run(sys.executable, "-c", f"{code} ask(Verb.STOP, None, None)")
    assert done.returncode == 0, done.stderr
    until(lambda: main_pid() not in (0, pid), "another daemon")
    u.call()


def check_restart_makes_another_daemon() -> None:
    pid = main_pid()
    done = u.json("restart")
    assert done["unit"] == service
    assert done["pid"] == main_pid() != pid
    u.call()


def check_logs_come_from_the_journal() -> None:
    logs = u.json("logs")
    assert logs["unit"] == service
    assert any("serving at" in line for line in logs["lines"]), logs


def check_stop_ends_the_service_and_closes_the_socket() -> None:
    pid = main_pid()
    assert u.json("stop")["pid"] == pid
    assert not Path(f"/proc/{pid}").exists()
    assert not socket_file.exists()
    assert u.systemctl("is-active", socket, service).split() == ["inactive", "inactive"]
    assert u.jitserver("stop").returncode == 3
    assert u.jitserver("status").returncode == 3


def check_start_takes_over_from_a_daemon_that_a_client_started() -> None:
    u.call(JITSERVER_AUTOSTART="1")
    pid = u.json("status")["pid"]
    assert main_pid() == 0
    done = u.json("start")
    assert (done["result"], done["unit"]) == ("started", service)
    assert not Path(f"/proc/{pid}").exists()
    assert is_private_socket(socket_file, u.uid)
    assert u.json("status")["pid"] == main_pid() == done["pid"]
    u.call()


def check_another_environment_has_a_daemon_of_its_own() -> None:
    done = u.json("install", python=odd_python, LIBTPU_INIT_ARGS=ODD_SETTING)
    assert done["result"] == "installed"
    assert done["digest"] != digest
    u.call(python=odd_python, LIBTPU_INIT_ARGS=ODD_SETTING)
    other = u.json("status", python=odd_python, LIBTPU_INIT_ARGS=ODD_SETTING)
    assert other["pid"] == int(u.show(done["service"], "MainPID")) != main_pid()
    assert u.json("status")["pid"] == main_pid()


def check_odd_paths_and_settings_reach_the_daemon_as_they_are() -> None:
    pid = u.json("status", python=odd_python, LIBTPU_INIT_ARGS=ODD_SETTING)["pid"]
    assert Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[0] == odd_python
    found = variables_of(pid)
    assert found["LIBTPU_INIT_ARGS"] == ODD_SETTING
    assert found["JAX_PLATFORMS"] == "cpu"


def check_settings_of_the_manager_do_not_leak_in() -> None:
    u.systemctl("set-environment", "LIBTPU_INIT_ARGS=of-the-manager")
    assert "LIBTPU_INIT_ARGS" not in variables_of(u.json("restart")["pid"])
    u.systemctl("unset-environment", "LIBTPU_INIT_ARGS")


def check_a_path_that_systemd_takes_in_no_form_is_refused() -> None:
    python = copy_of_environment(u.home / "a 'quoted' one")
    failed(u.jitserver("install", python=python), 1, "quotes or backslashes")
    assert len(list(units.glob("*.service"))) == 2


def check_a_broken_unit_can_be_uninstalled() -> None:
    done = u.json("install", XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    Path(done["files"][1]).write_text("[Service]\nExecStart=not a path\n")
    u.systemctl("stop", done["socket"])
    u.systemctl("daemon-reload")
    assert u.json("uninstall", XLA_FLAGS="--xla_cpu_enable_fast_math=false")["result"] == "uninstalled"
    assert not [path for path in done["files"] if Path(path).exists()]


def check_uninstall_leaves_the_other_environment_alone() -> None:
    done = u.json("uninstall", python=odd_python, LIBTPU_INIT_ARGS=ODD_SETTING)
    assert done["result"] == "uninstalled"
    assert not [path for path in done["files"] if Path(path).exists()]
    assert u.json("status")["pid"] == main_pid()


def check_changed_units_are_taken_up() -> None:
    (units / service).write_text((units / service).read_text().replace("TimeoutStopSec=45", "TimeoutStopSec=44"))
    u.systemctl("daemon-reload")
    assert u.show(service, "TimeoutStopUSec") == "44s"
    assert u.json("install")["result"] == "updated"
    assert u.show(service, "TimeoutStopUSec") == "45s"
    u.call()


def check_the_watchdog_is_fed() -> None:
    drop_in = units / f"{service}.d" / "short.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=3\n")
    u.systemctl("daemon-reload")
    pid = u.json("restart")["pid"]
    started = float(u.show(service, "ExecMainStartTimestampMonotonic"))
    # Twice the time after which a daemon that says nothing is ended.
    until(lambda: float(u.show(service, "WatchdogTimestampMonotonic")) - started > 6e6, "six seconds of its heartbeats")
    assert main_pid() == pid


def check_the_watchdog_replaces_a_daemon_that_hangs() -> None:
    pid = main_pid()
    kill(pid, signal.SIGSTOP)
    until(lambda: main_pid() not in (0, pid), "systemd to end it and start another")
    u.call()
    assert "watchdog" in u.run("journalctl", "--user", "--unit", service, "-o", "cat").stdout.lower()


def check_uninstall_leaves_nothing() -> None:
    pid = main_pid()
    done = u.json("uninstall")
    assert done["result"] == "uninstalled"
    assert not Path(f"/proc/{pid}").exists()
    assert not socket_file.exists()
    assert not list(units.rglob("*.socket"))
    assert not list(units.glob("*.service"))
    assert "jitserver" not in u.systemctl("list-unit-files", "--no-legend")
    assert parsed(u.jitserver("uninstall", "--json"))["result"] == "nothing to uninstall"
