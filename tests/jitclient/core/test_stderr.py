"""Lines on stderr, wherever it goes."""

import io
import sys
from pathlib import Path

import pytest

from jitclient.core.notices import is_terminal, print_notice


def test_a_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_notice("started")
    assert capsys.readouterr() == ("", "jitserver: started\n")


def test_a_stderr_that_takes_nothing_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    full = Path("/dev/full").open("w")  # noqa: SIM115  (it cannot be closed without an error)
    for stderr in (None, closed, full):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert not is_terminal()
        print_notice("started")
        assert capsys.readouterr().out == ""
    with pytest.raises(OSError, match="No space"):
        full.close()
