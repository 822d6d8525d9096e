"""The lab's cache on a server that speaks S3: it is used, and no call waits for one that hangs."""

import importlib.util
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from jitserver.store.share.objects import Objects
from jitserver.store.share.options import LabOptions
from jitserver.store.share.share import Share
from jitserver.store.share.storage import Storage

from .test_lab import KEY, PROGRAM, VALUE

MISSING = [name for name in ("moto", "s3fs", "flask") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason="NOT TESTED HERE: S3, which needs `pip install s3fs 'moto[server]'`"),
]

SERVER = """
import logging, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.disable()
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A server of S3 with the bucket `lab`, and the user's variables for it."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        for name, value in (
            ("AWS_ENDPOINT_URL", url),
            ("AWS_ACCESS_KEY_ID", "someone"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        # fsspec would use its connection to the server of the test before.
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        urllib.request.urlopen(urllib.request.Request(f"{url}/lab", method="PUT")).close()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def objects(server: Any) -> Objects:
    return Objects("s3://lab/jit")


def test_objects_of_a_bucket(objects: Objects) -> None:
    assert objects.get("a/b", 100) is None
    objects.put("a/b", b"first")
    assert objects.get("a/b", 100) == b"first"
    assert objects.get("a/b", 3) == b"fir"
    objects.put("a/b", b"third")
    assert objects.has("a/b")
    (found,) = objects.all("a")
    assert (found.name, found.nbytes) == ("a/b", 5)
    assert found.written > 1e9
    objects.remove("a/b")
    assert objects.get("a/b", 100) is None


def test_a_server_that_hangs_holds_up_nobody(server: subprocess.Popen[str]) -> None:
    asking = Share(Storage(LabOptions("s3://lab/jit", b"a secret of the project")))
    asking.storage.connect()
    assert asking.storage.get("key", 100, seconds=60) is None
    assert not asking.storage.why_off
    server.send_signal(signal.SIGSTOP)
    assert asking.lists_of("base") == {}
    assert asking.storage.why_off.startswith("StorageHangs")
    assert asking.get("key", 2.0) is None


def test_a_fresh_home_finds_what_another_machine_has_made(
    server: Any, own: Any, tmp_path: Path, until: Callable[..., Any]
) -> None:
    own.env = {"JITSERVER_SHARE": "s3://lab/jit", "JITSERVER_SHARE_KEY": KEY}
    for home, traces in ("one", 1), ("other", 0):
        with own.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/{home}"):
            assert own.run(PROGRAM) == VALUE
            assert own.counts()["traces"] == traces
            # A program, and its trace; a daemon that ends does not wait for slow uploads.
            until(lambda made=traces: own.counts()["share"].uploaded == 2 * made, "the upload")
