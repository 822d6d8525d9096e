"""Addresses of other machines, and the commands that reach them. tests/end_to_end/ssh has what needs an sshd."""

import shlex
import shutil

import pytest

from jitclient.errors import DaemonUnavailable, SettingsError
from jitclient.wire.address import Address, remote
from jitclient.wire.ssh import SshAddress


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("ssh://host", SshAddress("host")),
        ("ssh://alice@gpu.example.org:2222", SshAddress("gpu.example.org", "alice", 2222)),
        ("ssh://host/opt/jit", SshAddress("host", environment="/opt/jit")),
        ("ssh://host/~/work/jit", SshAddress("host", environment="~/work/jit")),
        ("ssh://alice@[fe80::1%25eth0]:22/opt", SshAddress("fe80::1%25eth0", "alice", 22, "/opt")),
    ],
)
def test_an_address_prints_as_it_is_written(text: str, means: SshAddress) -> None:
    assert remote(text) == means
    assert str(means) == text


@pytest.mark.parametrize(
    "text",
    [
        "ssh:",
        "ssh://",
        "ssh:host",
        "ssh://-oProxyCommand=touch x",
        "ssh://-oProxyCommand=x@host",
        "ssh://[-oProxyCommand=x]",
        "ssh://alice:secret@host",
        "ssh://host:0",
        "ssh://host:70000",
        "ssh://host:x",
        "ssh://a b",
        "ssh://host/a\nb",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="expected ssh://"):
        remote(text)


def test_other_addresses_are_of_this_machine() -> None:
    assert remote(None) is None
    assert remote("unix:/run/x") is None


def test_a_daemon_does_not_listen_on_another_machine() -> None:
    with pytest.raises(SettingsError, match="listens on Unix sockets only"):
        Address.parse("ssh://host")


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize(
    ("address", "there"),
    [
        ("ssh://host", "jitserver"),
        ("ssh://host/~/my jit", "'my jit/bin/jitserver'"),  # commands start in the home folder
        ("ssh://host/opt/$(reboot)", "'/opt/$(reboot)/bin/jitserver'"),
    ],
)
def test_the_shell_there_gets_words_as_they_are(address: str, there: str) -> None:
    command = SshAddress.parse(address).command("jitserver", "cache", "rm", "a; b")
    assert command[-3:] == ["--", "host", f"{there} cache rm 'a; b'"]


@pytest.mark.usefixtures("ssh")
def test_what_is_shown_to_people_is_what_is_run() -> None:
    where = SshAddress.parse("ssh://alice@host:2222/opt/jit")
    command = where.command("pip", "install", "jax==1")
    assert command[command.index("-l") :] == [
        "-l",
        "alice",
        "-p",
        "2222",
        "--",
        "host",
        "/opt/jit/bin/pip install jax==1",
    ]
    assert where.shown("pip", "install", "jax==1") == "ssh -p 2222 alice@host /opt/jit/bin/pip install jax==1"
    assert shlex.split(where.shown("pip", "install", "jax==1"))[3] == "alice@host"


def test_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DaemonUnavailable, match="install OpenSSH's client"):
        SshAddress("host").connect()
