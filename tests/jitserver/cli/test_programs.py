"""Words of the commands that run a program as `jitserver run` does."""

from collections.abc import Callable

import pytest
from click.testing import Result

Here = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "There is no program to run."),
        (["-m"], "There is no program to run."),
        (["--package", "numpyro"], "There is no program to run."),
        (["--no-such-option", "x.py"], "No such option"),
        (["missing.py"], "There is no program 'missing.py'."),
        (["missing.ipynb"], "There is no program 'missing.ipynb'."),
    ],
)
def test_words_without_a_program(here: Here, words: list[str], message: str) -> None:
    done = here("watch", *words)
    assert done.exit_code == 2
    assert message in done.output
