"""The forms of the report, and that any other file is refused with the valid suffixes."""

import pytest

from jitclient.core import report_form


@pytest.mark.parametrize(
    ("form", "is_file"),
    [("off", None), ("lines", None), ("text", False), ("json", False), ("a/b.html", True), ("b.json", True)],
)
def test_forms(form: str, is_file: bool | None) -> None:
    assert report_form.checked(form) == form
    assert report_form.is_file(form) == bool(is_file)
    assert report_form.is_at_exit(form) == (is_file is not None)


@pytest.mark.parametrize("form", ["html", "run.txt", "run.html.gz", ".html", "run", ""])
def test_other_values_are_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"expected 'off', 'lines', 'text', 'json', or a file .* in \.html or \.json"):
        report_form.checked(form)
