"""The settings of the lab's cache are read from the environment, and refused with their name."""

from pathlib import Path

import pytest

from jitclient.errors import SettingsError
from jitserver.store.share.options import LabOptions

SECRET = "0123456789abcdef"
SET = {"JITSERVER_SHARE": "file:///nfs/jit/", "JITSERVER_SHARE_KEY": SECRET}


def test_without_a_url_there_is_none() -> None:
    assert LabOptions.from_environment({"JITSERVER_SHARE_KEY": SECRET}) is None


def test_what_is_set_holds(tmp_path: Path) -> None:
    assert LabOptions.from_environment(SET) == LabOptions("file:///nfs/jit", SECRET.encode(), writes=True)
    assert LabOptions.from_environment({**SET, "JITSERVER_SHARE_MODE": "read"}) == LabOptions(
        "file:///nfs/jit", SECRET.encode(), writes=False
    )
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o640)
    given = {"JITSERVER_SHARE": "s3://lab", "JITSERVER_SHARE_KEY_FILE": str(file)}
    assert LabOptions.from_environment(given) == LabOptions("s3://lab", SECRET.encode())


def test_the_key_is_not_shown() -> None:
    assert SECRET not in repr(LabOptions.from_environment(SET))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"JITSERVER_SHARE": "/nfs/jit"}, "JITSERVER_SHARE='/nfs/jit': expected a URL"),
        ({"JITSERVER_SHARE_MODE": "write"}, "JITSERVER_SHARE_MODE='write': expected readwrite or read"),
        ({"JITSERVER_SHARE_KEY": "short"}, "has 5 bytes, but needs 16"),
        ({"JITSERVER_SHARE_KEY": ""}, "has 0 bytes, but needs 16"),
        ({"JITSERVER_SHARE_KEY_FILE": "/nowhere"}, "both set"),
        ({"JITSERVER_SHARE_KEY": "", "JITSERVER_SHARE_KEY_FILE": "/nowhere"}, "/nowhere: No such file"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        LabOptions.from_environment({**SET, **change})


def test_a_key_that_all_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="other users can use it"):
        LabOptions.from_environment({"JITSERVER_SHARE": "s3://lab", "JITSERVER_SHARE_KEY_FILE": str(file)})
