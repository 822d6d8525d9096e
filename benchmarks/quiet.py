"""Foreign code, such as an example of JAX's, without what it says."""

import contextlib
import io
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what is printed and warned of meanwhile."""
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with silent[0], silent[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
