"""The page of a run: whole in itself, with data that no name can break out of."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec

from jitclient.api import run_page

from .run_records import record


class Elements(HTMLParser):
    """The elements of a page, and the text of its data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.data = ""
        self._is_data = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self._is_data = dict(attrs).get("id") == "run"

    def handle_endtag(self, tag: str) -> None:
        self._is_data = False

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data


def test_the_page_has_the_record() -> None:
    made = record()
    found: dict[str, Any] = json.loads(Elements(run_page.encoded(made).decode()).data)
    assert found == json.loads(msgspec.json.encode(made))


def test_no_name_breaks_out_of_the_data() -> None:
    name = "</script><b>&<!--<script>"
    plain, odd = (Elements(run_page.encoded(record(each)).decode()) for each in ("f", name))
    assert odd.names == plain.names
    assert json.loads(odd.data)["programs"][0]["program"] == f"{name}(f32[3])"


def test_the_page_needs_no_network() -> None:
    page = run_page.encoded(record()).decode()
    assert not re.search(r"https?:|//[\w.]+/|\bsrc=|\bhref=|@import|url\(", page)


def test_light_and_dark_have_the_same_colours() -> None:
    page = run_page.encoded(record()).decode()
    light, dark = (set(re.findall(r"(--[\w-]+): #", part)) for part in page.split("prefers-color-scheme: dark)", 1))
    assert light <= dark
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert used <= light
