"""Commands do not wait for ever for a storage that hangs."""

import os
from pathlib import Path

import pytest

from jitserver.store.deadline import StorageHangs
from jitserver.store.share import patient_objects
from jitserver.store.share.patient_objects import PatientObjects


def test_a_storage_that_answers_is_as_another(tmp_path: Path) -> None:
    objects = PatientObjects(f"file://{tmp_path}")
    objects.put("a/b", b"first")
    assert objects.create("a/c", b"second")
    assert not objects.create("a/c", b"third")
    assert [(each.name, each.nbytes) for each in sorted(objects.all("a"))] == [("a/b", 5), ("a/c", 6)]
    assert objects.get("a/b", 100) == b"first"
    objects.remove("a/b")
    assert not objects.has("a/b")


def test_a_storage_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_objects, "SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")  # reading it waits for a writer
    objects = PatientObjects(f"file://{tmp_path}")
    try:
        with pytest.raises(StorageHangs, match="has not answered"):
            objects.get("pipe", 0)
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))


def test_more_bytes_may_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    objects = PatientObjects(f"file://{tmp_path}")
    monkeypatch.setattr(objects._deadlines, "run", lambda act, seconds: given.append(seconds))
    objects.put("a", b"")
    objects.put("a", bytes(3 << 20))
    assert given == [patient_objects.SECONDS, patient_objects.SECONDS + 3]
