"""Tracebacks of captured code, told by where its source is now."""

import re
from collections.abc import Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from jitclient.codec.user_code.bytecode import nested


class Frame(NamedTuple):
    """One frame of a traceback that belongs to captured code."""

    file: str
    line: int
    name: str


class Places:
    """Which code objects belong to a capture, and where each is in the user's files."""

    def __init__(self, owners: Sequence[Any], codes: Sequence[Any]) -> None:
        self._codes = codes
        self._found: dict[int, tuple[CodeType, int, int]] = {}
        for n, owner in enumerate(owners):
            for part, found in enumerate(nested(getattr(owner, "__code__", owner))):
                self._found[id(found)] = (found, n, part)

    def of(self, code: CodeType) -> tuple[int, int] | None:
        """Which piece of the capture's code holds a code object, and its number there."""
        found = self._found.get(id(code))
        return None if found is None else found[1:]

    def frames(self, tb: TracebackType | None, codes: Sequence[Any] | None) -> list[Frame]:
        """The frames of a traceback that belong to the capture, outermost first."""
        frames = []
        while tb is not None:
            known = self._found.get(id(tb.tb_frame.f_code))
            if known is not None:
                code = _located(*known, self._codes if codes is None else codes)
                line = dict(enumerate(_lines(code))).get(tb.tb_lasti // 2)
                frames.append(Frame(code.co_filename, line or code.co_firstlineno, code.co_qualname))
            tb = tb.tb_next
        return frames

    def text(self, text: str, codes: Sequence[Any]) -> str:
        """A text that quotes tracebacks, with the places of captured code as `codes` say they are now."""
        return _PLACE.sub(lambda place: self._moved(place, codes), text)

    def _moved(self, place: re.Match[str], codes: Sequence[Any]) -> str:
        file, line, name = place.groups()
        for code, owner, part in self._found.values():
            if code.co_filename == file and name in (code.co_name, code.co_qualname):
                located = _located(code, owner, part, codes)
                for was, now in zip(_lines(code), _lines(located), strict=False):
                    if was == int(line) and now is not None:
                        return f'File "{located.co_filename}", line {now}, in {name}'
        return place.group()


_PLACE = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def _lines(code: CodeType) -> Iterator[int | None]:
    return (line for line, *_ in code.co_positions())


def _located(code: CodeType, owner: int, part: int, codes: Sequence[Any]) -> CodeType:
    """The code with the places that `codes` give it."""
    try:
        file, first_line, lines, qualname, *_ = codes[owner][part]
        return code.replace(co_filename=file, co_firstlineno=first_line, co_linetable=lines, co_qualname=qualname)
    except (IndexError, TypeError, ValueError):
        return code  # the caller sent none: say where it was when it was loaded
