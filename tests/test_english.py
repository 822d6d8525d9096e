"""The words of the packages: phrases that STYLE's readers had to decode do not come back."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
SOURCES = [path for folder in ("client", "jitserver", "scripts") for path in sorted((TOP / folder).rglob("*.py"))]

HEADLESS = re.compile(r"\A[#rf\"'\s]*(What|That|Those|It|One) (?!function\b|line\b|program\b|step\b)")
"""A first word that stands for a noun which is not there."""

PHRASES = re.compile(
    r"\b(as ever|as it was|is told|of no use|by now|goes on|whoever|nobody|somebody|is another|lets go|anew)\b"
    r"|\b[Hh]ave \w+ (do|be|keep)\b"
)


def _words(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the comments and strings of a file, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def faults(words: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    return [
        (line, found.group().strip())
        for line, text in words
        for found in (HEADLESS.search(text), PHRASES.search(" ".join(text.split())))
        if found is not None
    ]


def test_words_of_the_packages() -> None:
    found = {str(path.relative_to(TOP)): faults(_words(path)) for path in SOURCES}
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize("text", ['"""What it does."""', "# It is told", '"the order\n is another here"', "# as ever"])
def test_what_is_found(text: str) -> None:
    assert faults(iter([(1, text)]))
