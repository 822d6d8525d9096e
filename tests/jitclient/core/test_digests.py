"""The digests are those of the caches that are on disks today: another one would make every program again."""

from pathlib import Path

from jitclient.core.digests import array_digest, digest, file_digest

ABC = "cf4ab791c62b8d2b2109c90275287816"


def test_digests_stay_what_they_are(tmp_path: Path) -> None:
    assert digest(b"abc").hex() == digest(bytearray(b"abc")).hex() == ABC
    assert digest(b"abc", 6).hex() == "13c9497c2425"
    assert array_digest(memoryview(b"abc")).hex().startswith("ba7816bf8f01cfea")
    (tmp_path / "file").write_bytes(b"abc")
    with open(tmp_path / "file", "rb") as file:
        assert file_digest(file).hex() == ABC
