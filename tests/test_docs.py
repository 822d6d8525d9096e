"""The documentation names every variable, option, command and public name, and its links lead somewhere."""

import re
from pathlib import Path

import click
import pytest

import jitclient
from jitclient.core.settings import Settings
from jitserver.cli import main
from jitserver.cli.serve import serve

TOP = Path(__file__).parents[1]
PAGES = [*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")]


def page(name: str) -> str:
    return (TOP / "docs" / f"{name}.md").read_text()


def commands(group: click.Group, above: str = "jitserver") -> list[str]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        whole = f"{above} {name}"
        found += commands(command, whole) if isinstance(command, click.Group) else [whole]
    return found


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_variable_is_documented() -> None:
    named = set(re.findall(r"JITSERVER_[A-Z_]+", Settings.__doc__ or ""))
    assert named
    assert named <= set(re.findall(r"JITSERVER_[A-Z_]+", page("configuration")))


def test_every_option_of_the_daemon_is_documented() -> None:
    options = {name for option in serve.params for name in (*option.opts, *option.secondary_opts)}
    documented = set(re.findall(r"--[a-z][\w-]+", page("configuration").partition("## Options of the daemon")[2]))
    assert options - {"--prewarm"} == documented


def test_every_command_is_documented() -> None:
    rows = [line for line in page("command-line").splitlines() if line.startswith("| `jitserver")]
    documented = set()
    for row in rows:
        words, *more = re.findall(r"`([^`]+)`", row.split("|")[1])
        first = re.sub(r" (FROM|KEY|NAME|\[).*", "", words)
        documented |= {first} | {f"{first.rpartition(' ')[0]} {name.split()[0]}" for name in more}
    assert documented == set(commands(main))


def test_every_public_name_is_on_the_api_page() -> None:
    documented = re.findall(r"^::: jitclient(?!\.eqx|\.nnx)[\w.]*\.(\w+)$", page("api"), re.MULTILINE)
    assert sorted(set(documented) - {"Device"}) == sorted(jitclient.__all__)
    assert "::: jitclient.eqx.filter_jit\n" in page("api")
    assert len(documented) == len(set(documented))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_pages_and_headings(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path.name}: {link}"
        if anchor:
            assert anchor in slugs(target.read_text()), f"{path.name}: {link}"


def test_the_functions_that_make_the_key_are_where_the_page_says() -> None:
    named = re.findall(r"`(\w+)` in\s`([\w/]+\.py)`", page("keys"))
    assert len(named) > 15
    for name, path in named:
        assert re.search(rf"^ *((def|class) {name}\b|{name}\b.* = )", (TOP / path).read_text(), re.MULTILINE), (
            name,
            path,
        )


def test_every_row_of_the_key_is_on_its_page() -> None:
    source = (TOP / "jitserver" / "programs" / "keys.py").read_text()
    named = re.findall(r'^        "?(\w+)"?: _encode|rows\["(\w+)"\] = |\.rows, (\w+): ', source, re.MULTILINE)
    in_code = {name.lower() for found in named for name in found if name} | {"capture"}
    on_page = set(re.findall(r"^\| (\w+) \|", page("keys").partition("\n## ")[0], re.MULTILINE))
    assert in_code == on_page - {"Row"}
