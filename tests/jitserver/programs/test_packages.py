"""An upgrade of a package under a running daemon is noticed before a stale version is used."""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitserver.programs import context, packages
from jitserver.programs.counters import Counters
from jitserver.programs.engine import Engine
from jitserver.programs.packages import Packages
from jitserver.store.disk import Store
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer

LIBRARY = "upgradable"


def install(site: Path, version: str, factor: int) -> None:
    """Writes a small package as `pip install --target SITE --upgrade` does."""
    install_package(site, LIBRARY, version, f"def scaled(x):\n    return x * {factor}\n")


def install_package(site: Path, name: str, version: str, source: str, requires: str = "") -> None:
    """Writes a package that requires another one as `pip install --target SITE --upgrade` does."""
    for old in [*site.glob(name), *site.glob(f"{name}-*")]:
        shutil.rmtree(old)
    package, metadata = site / name, site / f"{name}-{version}.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text(source)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (metadata / "METADATA").write_text(about + (f"Requires-Dist: {requires}\n" if requires else ""))
    recorded = f"sha256={hashlib.sha256(source.encode()).hexdigest()},{len(source)}"
    (metadata / "RECORD").write_text(
        f"{name}/__init__.py,{recorded}\n{name}-{version}.dist-info/METADATA,,\n{name}-{version}.dist-info/RECORD,,\n"
    )
    (metadata / "top_level.txt").write_text(name)


def printed_by(folder: Path, script: str) -> list[str]:
    """Return the lines that a script prints in a fresh process, with `packages` and the folder `site`."""
    begin = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(folder)!r}]
from test_packages import LIBRARY, install
from jitserver.programs.packages import Packages
from pathlib import Path
packages, site = Packages(), Path({str(folder)!r})
"""
    done = subprocess.run([sys.executable, "-c", begin + script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_versions_are_those_that_were_seen_first(tmp_path: Path) -> None:
    install(tmp_path, "1.0", 2)
    script = """
print(packages.version(LIBRARY), packages.replaced([LIBRARY]))
install(site, "1.1", 3)
print(packages.version(LIBRARY), packages.replaced([LIBRARY]))
"""
    assert printed_by(tmp_path, script) == ["1.0 []", f"1.0 ['{LIBRARY}']"]


def test_a_package_that_was_never_seen_was_not_replaced() -> None:
    packages = Packages()
    assert packages.replaced(["nonsense"]) == []
    assert packages.version("nonsense") == "unknown"
    assert packages.version("jax")[0].isdigit()


def test_packages_that_a_trace_imports_are_noted(tmp_path: Path) -> None:
    script = f"""
install(site, "1.0", 2)
import {LIBRARY}
packages.record_loaded()
print(packages.replaced(), packages.version(LIBRARY))
install(site, "1.1", 3)
print(packages.replaced(), packages.version(LIBRARY))
"""
    assert printed_by(tmp_path, script) == ["[] 1.0", f"['{LIBRARY}'] 1.0"]


def test_a_file_that_comes_into_a_package_without_metadata_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests" / "site-packages" / "um_bare"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    packages = Packages()
    packages.version("um_bare")
    assert packages.edited() == []
    (folder / "tests").mkdir()
    (folder / "tests" / "inner.py").write_text("")  # which the package may import
    assert packages.edited() == ["um_bare"]


def test_what_provides_each_import_is_what_the_standard_library_says() -> None:
    told = importlib.metadata.packages_distributions()
    assert "numpy" in told
    found = packages._providers()
    # The RECORD of rpyc names ../../bin/. Python 3.12 takes the directories of bytecode for imports.
    no_imports = ("..", "__pycache__")
    assert found == {name: names for name, names in told.items() if name not in no_imports}


def test_the_environment_has_been_looked_through_before_a_client_comes() -> None:
    context.packages.cache_clear()
    Engine(Counters(), Tiers(MemoryTier(1 << 40, 1 << 20), Store(Path(), 0), Writer(lambda: 0)))
    assert context.packages.cache_info().currsize == 1


def test_packages_may_be_loaded_while_the_installed_ones_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    met = Packages()
    version = met.version

    def loading(name: str) -> str:
        met._loaded.add(f"of_another_thread_{len(met._loaded)}")
        return version(name)

    monkeypatch.setattr(met, "version", loading)
    assert met.installed()["jax"] == version("jax")


def test_names_of_no_package_do_not_have_the_environment_looked_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    looks = list[None]()
    every = packages._providers
    monkeypatch.setattr(packages, "_providers", lambda: looks.append(None) or every())
    met = Packages()
    assert looks == [None]
    for n in range(3):
        met.version(f"nonsense_{n}")
    assert looks == [None]
    (tmp_path / "new.dist-info").mkdir()  # something is being installed
    met.version("nonsense_3")
    assert looks == [None, None]


def test_clients_that_come_at_once_have_the_environment_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met, looks = Packages(), list[str]()
    monkeypatch.syspath_prepend(str(tmp_path))
    every = importlib.metadata.distributions

    def looked() -> Any:
        looks.append(threading.current_thread().name)
        return every()

    monkeypatch.setattr(importlib.metadata, "distributions", looked)
    gate = threading.Barrier(6)

    def client() -> None:
        gate.wait()
        met.version("nonsense")

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1


PROGRAM = f"""
    import json, jitclient, {LIBRARY}

    @jitclient.jit
    def fun(x):
        return {LIBRARY}.scaled(x)

    print(json.dumps(float(fun(1.0))))
"""


@pytest.mark.timeout(300)
def test_a_daemon_with_an_old_version_restarts(
    short_path: Path, run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]], cli: Callable[..., Any]
) -> None:
    site, address = short_path / "tests" / "site", f"unix:{short_path}/d.sock"  # not tests of the package
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1", "PYTHONPATH": str(site)}
    install(site, "1.0", 2)
    try:
        assert run_script(PROGRAM, env=env) == 2
        first = counts(address)
        assert run_script(PROGRAM, env=env) == 2
        assert counts(address)["traces"] == first["traces"] == 1

        install(site, "1.1", 3)
        assert run_script(PROGRAM, env=env) == 3, "never the old version's value"
        assert counts(address)["captures_loaded"] == 1, "it restarted with no programs"
    finally:
        cli("stop", env=env)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("change", ["in place", "the same version once more", "without metadata"])
def test_an_edited_package_is_the_edited_one(
    change: str,
    short_path: Path,
    run_script: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    cli: Callable[..., Any],
) -> None:
    site, address = short_path / "tests" / "site-packages", f"unix:{short_path}/d.sock"  # not tests of the package
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1", "PYTHONPATH": str(site)}

    def edit(factor: int) -> None:
        if change == "the same version once more":
            install(site, "1.0", factor)
        else:
            file = site / LIBRARY / "__init__.py"
            file.write_text(file.read_text().replace("* 2", f"* {factor}").replace("* 3", f"* {factor}"))
            os.utime(file, (time.time() + factor,) * 2)  # Python compares whole seconds of what it compiled

    install(site, "1.0", 2)
    if change == "without metadata":
        shutil.rmtree(site / f"{LIBRARY}-1.0.dist-info")
    try:
        assert run_script(PROGRAM, env=env) == 2
        edit(3)
        assert run_script(PROGRAM, env=env) == 3, "never the old value"
        made = counts(address)
        assert run_script(PROGRAM, env=env) == 3
        assert counts(address)["traces"] == made["traces"] == 1, "nothing restarts without a change"
        edit(2)
        assert run_script(PROGRAM, env=env) == 2
    finally:
        cli("stop", env=env)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", [("", "1", ""), ("1", "", "1")])
def test_packages_are_as_optimized_as_in_the_program(
    order: tuple[str, ...], short_path: Path, run_script: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    site = short_path / "site-packages"
    env = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "JITSERVER_AUTOSTART": "1", "PYTHONPATH": str(site)}
    install_package(site, LIBRARY, "1.0", "def scaled(x):\n    return x * (2 if __debug__ else 3)\n")
    try:
        for level in order:
            assert run_script(PROGRAM, env={**env, "PYTHONOPTIMIZE": level}) == (3 if level else 2)
    finally:
        cli("stop", env=env)


FRONT = f"""
    import {LIBRARY}

    def scaled(x):
        return {LIBRARY}.scaled(x)

    def maker():
        return {LIBRARY}.maker()
"""

BEHIND = """
    def scaled(x):
        return x * FACTOR

    def maker():
        def inner(x):
            return x * FACTOR
        return inner
"""

MADE = """
    import json, jax, flax, jitclient, front

    @flax.struct.dataclass
    class Held:
        value: object
        how: object = flax.struct.field(pytree_node=False)

    @jitclient.jit
    def fun(x):
        return Held(front.scaled(x), front.maker())

    made = fun(1.0)
    print(json.dumps([float(made.value), made.how(1.0)]))
"""


@pytest.mark.timeout(300)
def test_the_requirements_of_a_package_count(
    short_path: Path, run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]], cli: Callable[..., Any]
) -> None:
    site, address = short_path / "tests" / "site", f"unix:{short_path}/d.sock"  # not tests of the package
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1", "PYTHONPATH": str(site)}
    front, behind = textwrap.dedent(FRONT), textwrap.dedent(BEHIND)
    install_package(site, "front", "1.0", front, requires=f"{LIBRARY} (>=1.0) ; python_version > '3'")
    install_package(site, LIBRARY, "1.0", behind.replace("FACTOR", "2"))
    try:
        assert run_script(MADE, env=env) == [2, 2]
        cli("restart", env=env)
        assert run_script(MADE, env=env) == [2, 2]
        assert counts(address)["traces"] == 0, "the disk has it"

        install_package(site, LIBRARY, "1.1", behind.replace("FACTOR", "3"))
        assert run_script(MADE, env=env) == [3, 3], "never what another version gave"
    finally:
        cli("stop", env=env)


IMPORTS = """
    import json, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from test_packages import install_package
    from jitserver.programs import prewarm

    site = Path("site").absolute()
    install_package(site, "over_jax", "1", "", "between")
    install_package(site, "between", "1", "", "jax>=0.4")
    install_package(site, "without_jax", "1", "", "numpy")
    install_package(site, "raises", "1", "raise ValueError('no')", "jax")
    install_package(site, "exits", "1", "raise SystemExit('no')", "jax")
    install_package(site, "too_late", "1", "", "jax")
    sys.path.insert(0, str(site))
    names = ["missing", "raises", "exits", "without_jax", "over_jax", "too_late"]
    remaining = len(names)

    def may_continue():
        global remaining
        remaining -= 1
        return remaining > 0

    prewarm.import_packages(names, may_continue)
    print(json.dumps([name for name in [*names, "between"] if name in sys.modules]))
"""


def test_only_packages_that_depend_on_jax_are_imported_ahead(run_script: Callable[..., Any]) -> None:
    assert run_script(IMPORTS, str(Path(__file__).parent)) == ["over_jax"]


def test_one_version_has_one_digest_in_all_environments(tmp_path: Path) -> None:
    """Scripts begin with the path of their environment; pip lists compiled files, other installers do not."""
    found = []
    for name, more in (
        ("pip", [f"{LIBRARY}/__pycache__/__init__.cpython-311.pyc,,", f"{LIBRARY}-1.0.dist-info/INSTALLER,sha256=a,3"]),
        ("uv", [f"{LIBRARY}-1.0.dist-info/INSTALLER,sha256=b,2", f"{LIBRARY}-1.0.dist-info/REQUESTED,,"]),
    ):
        site = tmp_path / name
        install(site, "1.0", 2)
        record = site / f"{LIBRARY}-1.0.dist-info" / "RECORD"
        record.write_text("\n".join([f"../../../bin/tool,sha256={name},227", record.read_text(), *more]))
        found += printed_by(site, "print(packages.versions([LIBRARY])[LIBRARY])")
    install(tmp_path / "other", "1.0", 3)
    found += printed_by(tmp_path / "other", "print(packages.versions([LIBRARY])[LIBRARY])")
    assert found[0] == found[1] != found[2]


def test_an_edited_file_counts_by_its_place_in_the_package(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        site = tmp_path / name
        install(site, "1.0", 2)
        (site / LIBRARY / "__init__.py").write_text("def scaled(x):\n    return x * 5\n")
        later = time.time() + 10
        os.utime(site / LIBRARY / "__init__.py", (later, later))
        found += printed_by(site, "print(packages.versions([LIBRARY])[LIBRARY])")
    assert found[0] == found[1]
