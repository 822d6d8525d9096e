"""The words of the repository: phrases that STYLE's readers had to decode do not come back."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
FOLDERS = ("client", "jitserver", "scripts", "benchmarks", "examples", "tests", "docs", "systemd")
HISTORY = "CHANGELOG.md"
"""The page whose old entries stay as they were written."""
EXAMPLES = Path(__file__)
"""The file that quotes the phrases."""

HEADLESS = re.compile(r"\A[#rf\"'\s]*(What|That|Those|It|One) (?!function\b|line\b|program\b|step\b)")
"""A first word that stands for a noun which is not there."""

HEADLESS_SENTENCE = re.compile(r"(?:\A[-*\s]*|[.:] )(What|Those) |\A(?:That|It) ")
"""The same in a paragraph, whose later sentences may refer to the noun of an earlier one."""

PHRASES = re.compile(
    r"\b(as ever|as it was|is told|of no use|by now|goes on|whoever|nobody|somebody|is another|lets go|anew)\b"
    r"|\b[Hh]ave \w+ (do|be|keep)\b"
)


def sources() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (TOP / folder).rglob("*") if path.is_file()]
    return sorted(path for path in [*inside, *TOP.glob("*.md")] if path != EXAMPLES and path.name != HISTORY)


def _words(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the comments and strings of a file, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the blocks of comments of a unit, each with its line."""
    text = path.read_text()
    for found in re.finditer(r"(?:^#.*\n)+", text, re.M):
        yield text.count("\n", 0, found.start()) + 1, found.group().replace("\n#", "\n")


def _blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a page, each with its line; headings and code aside."""
    text = re.sub(r"^```.*?^```$", lambda code: "\n" * code.group().count("\n"), path.read_text(), flags=re.M | re.S)
    for found in re.finditer(r"^(?!#+ )[^\n]+(?:\n(?!\s*[-*|] )[^\n]+)*", text, re.M):
        yield text.count("\n", 0, found.start()) + 1, found.group()


def faults(words: Iterator[tuple[int, str]], headless: re.Pattern[str] = HEADLESS) -> list[tuple[int, str]]:
    return [
        (line, found.group().strip())
        for line, text in words
        for found in (headless.search(" ".join(text.split())), PHRASES.search(" ".join(text.split())))
        if found is not None
    ]


def faults_of(path: Path) -> list[tuple[int, str]]:
    if path.suffix == ".py":
        return faults(_words(path))
    if path.suffix == ".md":
        return faults(_blocks(path), HEADLESS_SENTENCE)
    return faults(_comments(path)) if path.suffix in (".service", ".socket") else []


def test_words_of_the_repository() -> None:
    found = {str(path.relative_to(TOP)): faults_of(path) for path in sources()}
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize("text", ['"""What it does."""', "# It is told", '"the order\n is another here"', "# as ever"])
def test_what_is_found(text: str) -> None:
    assert faults(iter([(1, text)]))
