"""Settings from the environment: a bad value fails loudly."""

import pytest

from jitclient.core.settings import Settings, is_report_at_exit, is_report_file, report_form
from jitclient.errors import SettingsError


def test_defaults() -> None:
    expected = Settings(None, True, "local", verify="new", client_device="cpu", report="")
    assert Settings.from_environment({}) == expected


def test_all_of_them() -> None:
    environment = {
        "JITSERVER_ADDRESS": "unix:/x",
        "JITSERVER_AUTOSTART": "no",
        "JITSERVER_FALLBACK": "error",
        "JITSERVER_REPORT": "lines",
        "JITSERVER_VERIFY": "always",
        "JITSERVER_CLIENT_DEVICE": "keep",
        "JITSERVER_CLIENT_CACHE": "no",
    }
    assert Settings.from_environment(environment) == Settings(
        "unix:/x", False, "error", "always", "keep", client_cache=False, report="lines"
    )


@pytest.mark.parametrize("verify", ["off", "new", "always"])
def test_what_is_verified(verify: str) -> None:
    assert Settings.from_environment({"JITSERVER_VERIFY": verify}).verify == verify
    with pytest.raises(SettingsError, match="expected 'new' or 'always' or 'off'"):
        Settings.from_environment({"JITSERVER_VERIFY": "1"})


@pytest.mark.parametrize("form", ["off", "lines", "text", "json", "run.html", "/a/run.json"])
def test_the_report(form: str) -> None:
    assert Settings.from_environment({"JITSERVER_REPORT": form}).report == form
    assert Settings.from_environment({"JITSERVER_REPORT": ""}).report == ""


def test_the_timeout() -> None:
    assert Settings().timeout == 60
    assert Settings.from_environment({"JITSERVER_TIMEOUT": "2.5"}).timeout == 2.5
    for wrong in ("0", "-1", "nan", "inf", ""):
        with pytest.raises(SettingsError, match="number of seconds"):
            Settings.from_environment({"JITSERVER_TIMEOUT": wrong})


NAMES = ("AUTOSTART", "CLIENT_CACHE", "CLIENT_DEVICE", "FALLBACK", "REPORT", "TIMEOUT", "VERIFY")


@pytest.mark.parametrize("name", [f"JITSERVER_{name}" for name in NAMES])
def test_a_bad_value_names_the_variable(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}='perhaps'"):
        Settings.from_environment({name: "perhaps"})


@pytest.mark.parametrize(
    ("form", "is_file"),
    [("off", None), ("lines", None), ("text", False), ("json", False), ("a/b.html", True), ("b.json", True)],
)
def test_forms_of_reports(form: str, is_file: bool | None) -> None:
    assert report_form(form) == form
    assert is_report_file(form) == bool(is_file)
    assert is_report_at_exit(form) == (is_file is not None)


@pytest.mark.parametrize("form", ["html", "run.txt", "run.html.gz", ".html", "run", ""])
def test_other_forms_of_reports_are_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"expected 'off', 'lines', 'text', 'json', or a file .* in \.html or \.json"):
        report_form(form)
