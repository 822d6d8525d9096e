"""Profiles of this process with the daemon's work: what lies in the log directory after `jax.profiler.trace`."""

import gzip
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.profiler import ProfileData, StepTraceAnnotation, TraceAnnotation, annotate_function

import jitclient
from jitclient.core.settings import settings
from jitclient.errors import DaemonUnavailable
from jitclient.jaxside import profiler
from jitclient.profiles import observer
from jitclient.profiles.recording import Recording
from jitclient.session import annotations, handshake, process
from jitclient.wire.recording import Record

X = np.ones((32, 32), np.float32)


@jitclient.jit
def profiled_step(x: Any) -> Any:
    return jnp.sin(x @ x)


@jitclient.jit
def other_step(x: Any) -> Any:
    return jnp.cos(x) + 1


class Event:
    def __init__(self, event: Any) -> None:
        self.name: str = event.name
        self.start, self.end = event.start_ns, event.start_ns + event.duration_ns
        self.stats = dict(event.stats)

    def encloses(self, other: "Event") -> bool:
        return self.start <= other.start and other.end <= self.end


class Profile:
    """The profile in a log directory: the events of each host."""

    def __init__(self, log_directory: Path) -> None:
        [self.directory] = (log_directory / "plugins" / "profile").iterdir()
        self.hosts = {
            path.name.removesuffix(".xplane.pb"): events_of(ProfileData.from_file(str(path)))
            for path in self.directory.glob("*.xplane.pb")
        }
        [self.here] = [events for host, events in self.hosts.items() if "_daemon" not in host]
        self.there = [event for host, events in self.hosts.items() if "_daemon" in host for event in events]

    def named(self, start: str) -> list[Event]:
        """The daemon's events whose names start so, in order."""
        return sorted((e for e in self.there if e.name.startswith(start)), key=lambda event: event.start)


def events_of(data: Any) -> list[Event]:
    return [Event(event) for plane in data.planes for line in plane.lines for event in line.events]


def operations(events: list[Event]) -> set[str]:
    return {event.name for event in events if "hlo_op" in event.stats}


@pytest.fixture
def warm(daemon: str, on_the_daemon: None) -> None:
    """The programs are made, so that profiles have calls only."""
    for step in (profiled_step, other_step):
        np.asarray(step(step(X)))


@pytest.mark.cpu(reason="a profiler that records operations")
@pytest.mark.usefixtures("warm")
def test_the_daemon_is_another_host_on_the_same_clock(daemon: str, tmp_path: Path, counts: Callable[..., Any]) -> None:
    with jax.profiler.trace(tmp_path, create_perfetto_trace=True):
        assert counts()["recordings"] == 1
        with TraceAnnotation("around", of="the call"):
            np.asarray(profiled_step(X))
    assert counts()["recordings"] == 0
    assert not annotations.are_sent
    assert "__enter__" not in vars(TraceAnnotation)
    profile = Profile(tmp_path)
    assert len(profile.hosts) == 2
    [run] = profile.named("profiled_step(f32[32,32]) of process ")
    assert run.name.endswith(f"process {os.getpid()}")
    found = [event for event in profile.there if event.stats.get("hlo_module") == "jit_profiled_step"]
    assert found
    assert all(run.start <= event.start <= run.end for event in found)
    # On one clock: the call was waited for within the annotation of this process.
    [around] = [event for event in profile.here if event.name == "around"]
    assert around.encloses(run)
    [there] = profile.named("around")
    assert there.encloses(run)
    assert there.stats == around.stats == {"of": "the call"}

    trace = json.loads(gzip.decompress((profile.directory / "perfetto_trace.json.gz").read_bytes()))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in trace if e.get("name") == "process_name"}
    [shown] = [event for event in trace if event.get("name") == run.name]
    assert re.fullmatch(r".*_daemon /host:CPU", processes[shown["pid"]])
    assert shown["ts"] * 1000 == pytest.approx(run.start, abs=1000)
    assert any(event.get("name") == "around" and event["pid"] != shown["pid"] for event in trace)


@pytest.mark.cpu(reason="a profiler that records operations")
@pytest.mark.usefixtures("warm")
def test_operations_have_the_names_of_plain_jax(tmp_path: Path) -> None:
    plain = jax.jit(profiled_step.__wrapped__)
    plain(X).block_until_ready()
    with jax.profiler.trace(tmp_path / "plain"):
        plain(X).block_until_ready()
    with jax.profiler.trace(tmp_path / "ours"):
        np.asarray(profiled_step(X))
    wanted = operations(Profile(tmp_path / "plain").here)
    assert wanted
    assert operations(Profile(tmp_path / "ours").there) == wanted


@pytest.mark.usefixtures("warm")
def test_annotations_enclose_the_calls_that_are_not_waited_for(daemon: str, tmp_path: Path) -> None:
    @annotate_function
    def annotated(x: Any) -> Any:
        return other_step(x)

    x = jitclient.device_put(X)
    with jax.profiler.trace(tmp_path):
        for number in range(3):
            with StepTraceAnnotation("train", step_num=number):
                x = profiled_step(x)
                x = annotated(x)
            x = other_step(x)
            with TraceAnnotation("without a call"):
                pass
    profile = Profile(tmp_path)
    steps = profile.named("train")
    assert [step.stats["step_num"] for step in steps] == [0, 1, 2]
    # The last calls were queued, and nothing waited for them before the end of the profile.
    calls, others = profile.named("profiled_step"), profile.named("other_step")
    assert (len(calls), len(others)) == (3, 6)
    for step, call, within, outside in zip(steps, calls, others[::2], others[1::2], strict=True):
        assert step.encloses(call)
        assert step.encloses(within)
        assert not step.encloses(outside)
    assert len(profile.named("test_annotations")) == 3
    assert not profile.named("without a call")


@pytest.mark.usefixtures("warm")
def test_annotations_are_those_of_the_thread_that_calls(tmp_path: Path) -> None:
    def elsewhere() -> None:
        with TraceAnnotation("elsewhere"):
            np.asarray(other_step(X))

    with jax.profiler.trace(tmp_path), TraceAnnotation("here"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        np.asarray(profiled_step(X))
    profile = Profile(tmp_path)
    [here], [there] = profile.named("here"), profile.named("elsewhere")
    assert here.encloses(profile.named("profiled_step")[0])
    assert there.encloses(profile.named("other_step")[0])
    assert there.end <= here.start


@pytest.mark.usefixtures("warm")
def test_the_daemon_records_with_the_options_of_the_profile(tmp_path: Path) -> None:
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.enable_hlo_proto = 3, False
    options.advanced_configuration = {"gpu_num_chips_to_profile_per_task": 1}
    options.python_tracer_level, options.raise_error_on_start_failure = 0, True  # as the daemon has
    with jax.profiler.trace(tmp_path, profiler_options=options):
        np.asarray(profiled_step(X))
    profiles = [ProfileData.from_file(str(path)) for path in tmp_path.rglob("*.xplane.pb")]
    here, there = (dict(one.find_plane_with_name("Task Environment").stats)["profile_options"] for one in profiles)
    assert here == there


@pytest.mark.usefixtures("warm")
def test_the_daemon_records_for_one_client_at_a_time(
    daemon: str, tmp_path: Path, counts: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    other = Recording(settings(), Record())
    with jax.profiler.trace(tmp_path):
        np.asarray(profiled_step(X))
    assert counts()["recordings"] == 1
    assert re.fullmatch("jitserver: the daemon is not in this profile: .* another client.*\n", capsys.readouterr().err)
    assert Profile(tmp_path).there == []
    other.end()
    found = events_of(ProfileData.from_serialized_xspace(other.fetched().xspace))
    assert any(event.name.startswith("profiled_step(") for event in found)
    other.connection.close()
    assert counts()["recordings"] == 0


def test_the_clock_is_measured_between_two_machines(daemon: str) -> None:
    recording = Recording(settings(), Record())
    assert recording._clock_ahead == 0  # of this machine
    assert abs(recording._measured()) < 60 * 10**9  # it is in fact this machine's, too
    recording.connection.close()


def test_a_client_that_is_killed_records_no_more(
    daemon: str, counts: Callable[..., Any], until: Callable[..., Any]
) -> None:
    source = """
        from jitclient.core.settings import settings
        from jitclient.profiles.recording import Recording
        from jitclient.wire.recording import Record
        recording = Recording(settings(), Record())
        print("records", flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"records\n"
        assert counts()["recordings"] == 1
        client.kill()
    until(lambda: counts()["recordings"] == 0, "the recording to end")


@pytest.mark.usefixtures("warm")
def test_a_daemon_that_is_reached_later_is_recorded_from_then_on(tmp_path: Path) -> None:
    for session in process.sessions():
        session.disconnect()
    with jax.profiler.trace(tmp_path):
        assert observer._observer._recordings == []
        with TraceAnnotation("around"):
            np.asarray(profiled_step(X))
    profile = Profile(tmp_path)
    [run], [around] = profile.named("profiled_step"), profile.named("around")
    assert around.encloses(run)


@pytest.mark.usefixtures("warm")
def test_sessions_of_the_profiler_within_another_one_change_nothing(
    daemon: str, tmp_path: Path, counts: Callable[..., Any], until: Callable[..., None]
) -> None:
    with jax.profiler.trace(tmp_path):
        inner = profiler.session(Record(1, False))
        assert counts()["recordings"] == 1
        del inner  # its `stop` would raise, as XLA has one session at a time
        np.asarray(profiled_step(X))
    assert len(Profile(tmp_path).named("profiled_step")) == 1
    dropped = profiler.session(Record(1, False))
    assert counts()["recordings"] == 1
    del dropped
    # The daemon ends it when it sees that the connection is closed.
    until(lambda: counts()["recordings"] == 0, "the recording to end")


@pytest.mark.usefixtures("warm")
def test_a_daemon_that_exits_meanwhile_leaves_the_profile_of_this_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with jax.profiler.trace(tmp_path):
        [recording] = observer._observer._recordings
        recording.connection._channel.stream.shut_down()
        recording.connection.close()
    assert re.fullmatch("jitserver: the daemon is not in this profile: .*\n", capsys.readouterr().err)
    assert Profile(tmp_path).there == []


@pytest.mark.usefixtures("warm")
def test_a_daemon_that_cannot_record_leaves_the_profile_of_this_process(
    daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise DaemonUnavailable("it has gone")

    monkeypatch.setattr(handshake, "connect_to_running", refuse)
    with jax.profiler.trace(tmp_path), TraceAnnotation("around"):
        np.asarray(profiled_step(X))
    assert capsys.readouterr().err == "jitserver: the daemon is not in this profile: it has gone\n"
    profile = Profile(tmp_path)
    assert any(event.name == "around" for event in profile.here)
    assert profile.there == []


def test_the_profile_of_memory_is_the_daemons(daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_here, held_there = jnp.zeros(7), jitclient.device_put(X)
    jax.profiler.save_device_memory_profile(tmp_path / "memory.prof")
    mine, found = test_the_profile_of_memory_is_the_daemons.__name__.encode(), (tmp_path / "memory.prof").read_bytes()
    assert b"jitserver/daemon/" in gzip.decompress(found)
    assert mine not in gzip.decompress(found)
    monkeypatch.setattr(process, "current", None)
    assert mine in gzip.decompress(jax.profiler.device_memory_profile())
    del held_here, held_there


def test_a_server_says_what_it_does_not_record(capsys: pytest.CaptureFixture[str]) -> None:
    observer._observer.serves()
    assert "`jax.profiler.trace` records the daemon, too" in capsys.readouterr().err
