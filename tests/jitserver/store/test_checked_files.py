"""Files that are whole or not there."""

from pathlib import Path

import pytest

from jitserver.store import checked_files
from jitserver.store.checked_files import Corrupt


def test_what_was_written_is_read(tmp_path: Path) -> None:
    checked_files.write(tmp_path / "a", [b"one", memoryview(b"two"), b""])
    assert bytes(checked_files.read(tmp_path / "a")) == b"onetwo"
    checked_files.write(tmp_path / "a", [])
    assert bytes(checked_files.read(tmp_path / "a")) == b""
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("length", range(0, 23, 2))
def test_a_shorter_file_is_corrupt(tmp_path: Path, length: int) -> None:
    checked_files.write(tmp_path / "a", [b"0123456789"])
    whole = (tmp_path / "a").read_bytes()
    assert len(whole) == 22
    (tmp_path / "a").write_bytes(whole[:length] if length < 22 else whole + b"\0")
    with pytest.raises(Corrupt, match="wrong checksum"):
        checked_files.read(tmp_path / "a")


@pytest.mark.parametrize("place", range(22))
def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path, place: int) -> None:
    checked_files.write(tmp_path / "a", [b"0123456789"])
    data = bytearray((tmp_path / "a").read_bytes())
    data[place] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(Corrupt):
        checked_files.read(tmp_path / "a")


def test_what_cannot_be_written_leaves_nothing_and_the_old_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked_files.write(tmp_path / "a", [b"old"])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checked_files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        checked_files.write(tmp_path / "a", [b"new"])
    assert bytes(checked_files.read(tmp_path / "a")) == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
