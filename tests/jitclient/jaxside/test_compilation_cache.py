"""Compilations of a process's own jax are found by the next one, and no damage to the cache reaches a program."""

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jitclient.core import directories
from jitclient.jaxside import compilation_cache
from jitclient.jaxside.compilation_cache import CompilationCache

PROGRAM = """
    import json
    import sys
    import warnings
    warnings.simplefilter("error")
    from jitclient.jaxside import compilation_cache, own_jax

    own_jax.configure()
    assert "jax" not in sys.modules
    import jax
    import jax.numpy as jnp

    compiled = []
    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "backend_compile_and_load":
            compiled.append(frame)
    exec(sys.argv[1] if len(sys.argv) > 1 else "")
    sys.setprofile(note)
    values = [jnp.sort(jnp.sin(jnp.arange(40.0)))[3], jnp.linalg.norm(jnp.ones((3, 3)))]
    sys.setprofile(None)
    cache = compilation_cache.own()
    if cache:
        assert cache.compiled == len(compiled)
    counts = [cache.found, cache.compiled] if cache else None
    print(json.dumps([counts, [float(value) for value in values], jax.config.jax_compilation_cache_dir]))
"""

Run = Callable[..., Any]


@pytest.fixture
def run(run_script: Run, short_path: Path) -> Run:
    """Runs the program with a cache of the test's own; there is no daemon, and it needs none."""

    def run(*arguments: str, name: str = "program.py", **env: str) -> Any:
        env = {"JITSERVER_CACHE_DIR": str(short_path / "cache"), **env}
        return run_script(PROGRAM, *arguments, name=name, env=env)

    return run


def _files(short_path: Path) -> list[Path]:
    return sorted((short_path / "cache").glob("*/compilations/*"))


def test_a_second_process_compiles_nothing(run: Run, short_path: Path) -> None:
    (found, compiled), values, configured = run(PYTHONHASHSEED="0")
    assert found == 0
    assert compiled > 0
    assert configured is None
    assert len(_files(short_path)) == compiled
    assert run(PYTHONHASHSEED="1") == [[compiled, 0], values, None]


def test_a_user_who_says_no_has_none(run: Run, short_path: Path) -> None:
    assert run(JITSERVER_CLIENT_CACHE="0")[0] is None
    assert _files(short_path) == []


def test_damaged_files_are_replaced_without_a_warning(run: Run, short_path: Path) -> None:
    (_, compiled), values, _ = run()
    first, second, *others = _files(short_path)
    first.write_bytes(b"")
    second.write_bytes(others[0].read_bytes())
    others[0].write_bytes(others[0].read_bytes()[:-1])
    others[1].unlink()
    others[1].mkdir()
    others[2].unlink()
    os.mkfifo(others[2])
    assert run() == [[compiled - 5, 5], values, None]
    assert run() == [[compiled - 1, 1], values, None], "a directory in the place of a file stays there"


def test_a_directory_that_cannot_be_used_costs_nothing_but_time(run: Run, short_path: Path) -> None:
    (_, compiled), values, _ = run()
    directory = _files(short_path)[0].parent
    for file in _files(short_path):
        file.unlink()
    directory.rmdir()
    directory.touch()
    assert run() == [[0, compiled], values, None]
    (short_path / "file").touch()
    assert run(JITSERVER_CACHE_DIR=str(short_path / "file")) == [None, values, None]


@pytest.mark.slow
def test_ten_processes_that_start_at_once_share_it(run: Run, short_path: Path) -> None:
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda number: run(name=f"program_{number}.py"), range(10)))
    assert len({str(values) for _, values, _ in answers}) == 1
    assert run()[0] == [len(_files(short_path)), 0]


FORKS_AND_THREADS = """
import os, threading
work = lambda: jnp.cos(jnp.arange(5.0)) + jnp.tanh(jnp.ones(6))[0]
# Before JAX starts threads, which no child has.
if not (pid := os.fork()):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert compilation_cache.own().found >= 4, "those of the child"
"""


def test_threads_and_forked_children_share_it(run: Run) -> None:
    first, second = run(FORKS_AND_THREADS), run(FORKS_AND_THREADS)
    assert second[1:] == first[1:]
    assert second[0][1] == 0


# ---- a cache by itself


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(compilation_cache, "write_fd", refuse)
    return


def test_an_executable_is_found_under_its_key_alone(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path / "made")
    cache.put("key", b"executable", 1.5)
    assert cache.get("key") == (b"executable", 1.5)
    [file] = (tmp_path / "made").iterdir()
    file.rename(file.with_name("other"))
    assert cache.get("other") is None
    with pytest.raises(FileNotFoundError):
        cache.get("key")


def test_short_compilations_are_not_wanted() -> None:
    cache = CompilationCache(Path(os.devnull), min_seconds=0.5)
    assert [cache.wants(0.4), cache.wants(0.5)] == [False, True]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_no_file_and_is_not_tried_again_at_once(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path)
    assert cache.wants(1.0)
    with pytest.raises(OSError, match="No space"):
        cache.put("key", b"executable", 1.5)
    assert list(tmp_path.iterdir()) == []
    assert not cache.wants(1.0)


def test_large_files_are_neither_written_nor_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CompilationCache(tmp_path)
    cache.put("kept", bytes(1000), 1.0)
    monkeypatch.setattr(compilation_cache, "_MAX_FILE_BYTES", 500)
    cache.put("large", bytes(1000), 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert cache.get("kept") is None


def test_the_directory_stays_below_its_maximum(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path, max_bytes=2500)
    for number in range(9):
        cache.put(f"{'00' if number == 8 else 'ff'}{number}", bytes(1000), 1.0)
        os.utime(next(tmp_path.glob(f"*{number}")), (number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["008", "ff7"]


def test_what_xla_measures_stays_below_its_maximum(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path / "compilations", max_bytes=2500)
    for number in range(3):
        path = Path(cache.tuning_directory(), f"{number}")
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    cache.put("000", bytes(1000), 1.0)
    assert sorted(path.name for path in Path(cache.tuning_directory()).iterdir()) == ["1", "2"]


def test_used_files_are_kept_longer(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path)
    for number in range(3):
        cache.put(f"{number}", bytes(1000), 1.0)
        os.utime(tmp_path / f"{number}", (number, number))
    cache.mark_used("0")
    directories.trim(tmp_path, 2500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "2"]
