"""Record of a run as one page that needs no network."""

from importlib import resources

import msgspec

from jitclient.api.run_record import RunRecord

_PLACE = "{}"
"""Content of the template's element for the data."""

_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&"}
"""Escapes without which a name could end the element, and become a part of the page."""


def encoded(record: RunRecord) -> bytes:
    """Return the page as UTF-8: the template with the record as JSON, which the template's script draws."""
    template = resources.files("jitclient.api").joinpath("run_page.html").read_text(encoding="utf-8")
    data = msgspec.json.encode(record).decode().translate(_ESCAPES)
    before, element, after = template.partition(f'<script id="run" type="application/json">{_PLACE}')
    return f"{before}{element.removesuffix(_PLACE)}{data}{after}".encode()
