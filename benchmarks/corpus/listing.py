"""Which programs to run, and how: the public ones of `programs.toml`, or the files of a folder."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("programs.toml")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program; `programs.toml` says what the fields mean. Without a repository, `file` lies on this machine."""

    name: str
    file: str
    kind: str = ""
    repository: str = ""
    commit: str = ""
    lines: int = 0
    also: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    cut: tuple[str, ...] = ()


def public() -> list[Program]:
    """The programs of the list."""
    return [Program(name, **_as_tuples(fields)) for name, fields in tomllib.loads(LIST.read_text()).items()]


def in_folder(folder: Path) -> list[Program]:
    """The programs in a folder: its Python files."""
    return [
        Program(path.stem, str(path.resolve()), lines=len(path.read_text().splitlines()))
        for path in sorted(folder.glob("*.py"))
    ]


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_tuples(item) for name, item in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
