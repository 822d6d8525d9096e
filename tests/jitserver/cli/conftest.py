"""Fixtures that the tests of the commands share."""

import os
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from jitclient.core.settings import settings
from jitserver.cli import main


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """The command line in this process, where the option --address changes the environment until the test ends."""
    monkeypatch.setenv("JITSERVER_ADDRESS", os.environ["JITSERVER_ADDRESS"])
    settings.cache_clear()
    yield lambda *words: CliRunner().invoke(main, words)
    settings.cache_clear()
