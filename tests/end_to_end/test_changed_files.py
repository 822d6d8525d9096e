"""A file that a function reads while it is traced is edited between two processes: the second one sees the edit."""

import _ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

IMPORTS = """
import ast, codecs, configparser, contextlib, csv, ctypes, fileinput, filecmp, functools, glob, gzip, hashlib, importlib
import importlib.metadata, importlib.resources, importlib.util, inspect, io, json, linecache, mmap, os, pickle, pkgutil
import runpy, shelve, shutil, sqlite3, subprocess, sys, tempfile, tokenize, tomllib, urllib.request, zipfile, zipimport
import multiprocessing.shared_memory
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from pathlib import Path
import numpy as np

HERE = os.path.dirname(__file__)
DATA = os.path.join(HERE, "data.txt")
CODE = os.path.join(HERE, "code.py")

def from_spec():
    spec = importlib.util.spec_from_file_location("um_code", CODE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SCALE

def fallback():
    try:
        return float((files(__package__) / "data.txt").read_text())
    except Exception:
        return 1.0

def lazily_imported():
    from .reading import SCALE
    return SCALE

def lazily_imported_resource():
    from .resource import SCALE
    return SCALE

def lazily_imported_path():
    from . import reading as module
    return float(Path(module.__file__).with_name("data.txt").read_text())

@functools.cache
def cached():
    return float(Path(DATA).read_text())

def database():
    with contextlib.closing(sqlite3.connect(os.path.join(HERE, "data.db"))) as connection:
        return connection.execute("select scale from settings").fetchone()[0]

def mapped():
    with open(DATA, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        return float(mapping[:])

def mapped_alone():
    number = os.open(DATA, os.O_RDONLY)
    try:
        with mmap.mmap(number, 0, access=mmap.ACCESS_READ) as mapping:
            return float(mapping[:])
    finally:
        os.close(number)

def parsed():
    parser = configparser.ConfigParser()
    parser.read(os.path.join(HERE, "data.ini"))
    return float(parser["all"]["scale"])

def library():
    try:
        ctypes.CDLL(os.path.join(HERE, "library.so"))
    except OSError:
        return 2.0
    return 3.0

BLOCK = multiprocessing.shared_memory.SharedMemory("um_block", create=True, size=8)
BLOCK.buf[:3] = Path(DATA).read_bytes()[:3]

def shared():
    memory = multiprocessing.shared_memory.SharedMemory("um_block")
    value = float(bytes(memory.buf[:3]))
    memory.close()
    return value
"""

READS = {
    "resources.files": 'float((importlib.resources.files(__package__) / "data.txt").read_text())',
    "files by name of the package": 'float(files("um_data").joinpath("data.txt").read_bytes())',
    "resources.as_file": 'float(importlib.resources.as_file(files(__package__) / "data.txt").__enter__().read_text())',
    "resources, with a fallback": "fallback()",
    "resources.is_resource": '2.0 + importlib.resources.is_resource(__package__, "added.txt")',
    "pkgutil.get_data": 'float(pkgutil.get_data(__package__, "data.txt"))',
    "pkgutil.get_data, with a fallback": 'float(pkgutil.get_data(__package__, "data.txt") or b"1.0")',
    "pkgutil.iter_modules": '2.0 + ("added" in {m.name for m in pkgutil.iter_modules([HERE])})',
    "find_spec": '2.0 + (importlib.util.find_spec("um_data.added") is not None)',
    "find_spec of a module at the top": '2.0 + (importlib.util.find_spec("um_added") is not None)',
    "__file__": 'float(Path(__file__).with_name("data.txt").read_text())',
    "__path__": "package.of_path()",
    "__spec__": 'float(Path(__spec__.origin).with_name("data.txt").read_text())',
    "__loader__": "float(__loader__.get_data(DATA))",
    "source, by __loader__": '2.0 + ("added" in package.code.__loader__.get_source("um_data.code"))',
    "__spec__ of a module": '2.0 + ("added" in package.code.__spec__.loader.get_source("um_data.code"))',
    "spec_from_file_location": "from_spec()",
    "SourceFileLoader": 'SourceFileLoader("um_code", CODE).load_module().SCALE',
    "runpy.run_path": 'runpy.run_path(CODE)["SCALE"]',
    "runpy.run_module": 'runpy.run_module("um_data.code")["SCALE"]',
    "import_module": 'importlib.import_module("um_data.code").SCALE',
    "import_module, relative": 'importlib.import_module(".code", __package__).SCALE',
    "exec": "(lambda names: exec(Path(CODE).read_text(), names) or names)({})['SCALE']",
    "zipimport": 'zipimport.zipimporter(os.path.join(HERE, "code.zip")).load_module("zipped").SCALE',
    "lazily imported module that reads": "lazily_imported()",
    "lazily imported module with a resource": "lazily_imported_resource()",
    "__file__ of a lazily imported module": "lazily_imported_path()",
    "cached": "cached()",
    "getsource": '2.0 + ("added" in inspect.getsource(package.code))',
    "linecache": '2.0 + ("added" in "".join(linecache.getlines(CODE)))',
    "tokenize.open": "float(tokenize.open(DATA).read())",
    "open": "float(open(DATA).read())",
    "io.open": "float(io.open(DATA).read())",
    "io.open_code": "float(io.open_code(DATA).read())",
    "io.FileIO": "float(io.FileIO(DATA).read())",
    "os.open": "float(os.read(os.open(DATA, os.O_RDONLY), 9))",
    "codecs.open": 'float(codecs.open(DATA, encoding="utf-8").read())',
    "np.load": 'float(np.load(os.path.join(HERE, "data.npy")))',
    "np.load, mapped": 'float(np.load(os.path.join(HERE, "data.npy"), mmap_mode="r"))',
    "np.lib.format": 'float(np.lib.format.open_memmap(os.path.join(HERE, "data.npy")))',
    "np.loadtxt": "float(np.loadtxt(DATA))",
    "np.fromfile": 'float(np.fromfile(DATA, sep=" ")[0])',
    "np.fromregex": 'float(np.fromregex(DATA, r"([0-9.]+)", [("n", float)])["n"][0])',
    "json": "float(json.load(open(DATA)))",
    "json of a path": "float(json.loads(Path(DATA).read_bytes()))",
    "csv": "float(next(csv.reader(Path(DATA).open()))[0])",
    "tomllib": 'tomllib.loads(Path(HERE, "data.ini").read_text())["all"]["scale"]',
    "configparser": "parsed()",
    "pickle": 'pickle.loads(Path(HERE, "data.pickle").read_bytes())',
    "gzip": 'float(gzip.open(os.path.join(HERE, "data.gz")).read())',
    "zipfile": 'float(zipfile.ZipFile(os.path.join(HERE, "data.zip")).read("data.txt"))',
    "zipfile.Path": 'float(zipfile.Path(os.path.join(HERE, "data.zip"), "data.txt").read_text())',
    "sqlite3": "database()",
    "shelve": 'shelve.open(os.path.join(HERE, "data.shelf"), flag="r")["scale"]',
    "mmap": "mapped()",
    "mmap of a number": "mapped_alone()",
    "scandir": '2.0 + ("added.txt" in [e.name for e in os.scandir(HERE)])',
    "listdir": '2.0 + ("added.txt" in os.listdir(HERE))',
    "walk": '2.0 + ("added.txt" in next(os.walk(HERE))[2])',
    "glob": '2.0 + len(glob.glob(os.path.join(HERE, "added.t*")))',
    "Path.glob": '2.0 + len(list(Path(HERE).glob("added.t*")))',
    "Path.exists": '2.0 + Path(HERE, "added.txt").exists()',
    "os.path.exists": '2.0 + os.path.exists(os.path.join(HERE, "added.txt"))',
    "os.path.lexists": '2.0 + os.path.lexists(os.path.join(HERE, "added.txt"))',
    "os.access": '2.0 + os.access(os.path.join(HERE, "added.txt"), os.R_OK)',
    "os.stat": "float(os.stat(DATA).st_size - 1)",
    "os.path.realpath": '2.0 + ("data.txt" in os.path.realpath(os.path.join(HERE, "link")))',
    "os.readlink": '2.0 + ("data.txt" in os.readlink(os.path.join(HERE, "link")))',
    "fileinput": "float(next(fileinput.FileInput(DATA)))",
    "filecmp": '3.0 - filecmp.cmp(DATA, os.path.join(HERE, "two.txt"), shallow=False)',
    "file_digest": '3.0 - (hashlib.file_digest(open(DATA, "rb"), "md5").digest() == hashlib.md5(b"2.0").digest())',
    "shutil": "float(Path(shutil.copy(DATA, tempfile.mkdtemp())).read_text())",
    "subprocess": 'float(subprocess.run(["cat", DATA], capture_output=True).stdout)',
    "os.popen": 'float(os.popen(f"cat {DATA}").read())',
    "os.system": '2.0 + (os.system(f"test -e {HERE}/added.txt") == 0)',
    "a URL": 'float(urllib.request.urlopen(f"file://{DATA}").read())',
    "version of a distribution": 'float(importlib.metadata.version("um-dist"))',
    "metadata of a distribution": 'float(importlib.metadata.distribution("um-dist").metadata["Version"])',
    "entry points": 'float(next(iter(importlib.metadata.entry_points(group="um.group"))).value)',
    "shared library": "library()",
    "shared memory": "shared()",
    "a block of shared memory": "float(bytes(BLOCK.buf[:3]))",
}
"""Each gives 2.0 before the edit, 3.0 after it."""

FILES = {
    "um_data/__init__.py": "def of_path():\n    return float(open(f'{{__path__[0]}}/data.txt').read())\n",
    "um_data/code.py": "SCALE = {scale}\n",
    "um_data/reading.py": "from pathlib import Path\nSCALE = float(Path(__file__).with_name('data.txt').read_text())\n",
    "um_data/resource.py": "import pkgutil\nSCALE = float(pkgutil.get_data(__package__, 'data.txt') or 1)\n",
    "um_data/data.txt": "{scale}",
    "um_data/two.txt": "2.0",
    "um_data/data.ini": "[all]\nscale = {scale}\n",
    "dists/um_dist-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: um-dist\nVersion: {scale}\n",
    "dists/um_dist-1.0.dist-info/entry_points.txt": "[um.group]\nscale = {scale}\n",
}
ADDED = {
    "um_data/added.txt": "",
    "um_data/added.py": "",
    "um_added.py": "",
    "um_data/code.py": "SCALE = 3.0  # added\n",
    "um_data/data.txt": "3.00",
}

PROGRAM = """
import json, sys, warnings
import jax, jitclient, um_data.reads as reads
from jitclient.session.session import Session

warnings.simplefilter("ignore")
traced = []
count = Session.count_client_trace
Session.count_client_trace = lambda self, *args: traced.append(1) or count(self, *args)

def plain(reader):
    try:
        return float(jax.jit(lambda x: x * reader())(1.0))
    except Exception as error:
        return repr(error)

def called(number):
    reader = getattr(reads, f"reads_{number}")
    traced.clear()
    try:
        value = float(jitclient.jit(lambda x: x * reader())(1.0))
    except Exception as error:
        value = repr(error)
    return [value, plain(reader), len(traced)]

found = [called(number) for number in range(reads.COUNT)]
reads.BLOCK.unlink()
print(json.dumps(found))
"""


def _write(folder: Path, scale: str) -> None:
    for name, text in {**FILES, **(ADDED if scale == "3.0" else {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(scale=scale))
    data = folder / "um_data"
    made = subprocess.run(
        [sys.executable, "-c", MAKE_BINARIES, scale], cwd=data, check=True, capture_output=True, text=True
    )
    assert not made.stderr
    link = data / "link"
    link.unlink(missing_ok=True)
    link.symlink_to("data.txt" if scale == "3.0" else "two.txt")
    if scale == "3.0":
        shutil.copy(_ctypes.__file__, data / "library.so")


MAKE_BINARIES = """
import gzip, pickle, shelve, sqlite3, sys, zipfile
import numpy as np
scale = sys.argv[1]
np.save("data.npy", float(scale))
open("data.pickle", "wb").write(pickle.dumps(float(scale)))
gzip.open("data.gz", "wb").write(scale.encode())
zipfile.ZipFile("data.zip", "w").writestr("data.txt", scale)
zipfile.ZipFile("code.zip", "w").writestr("zipped.py", f"SCALE = {scale}")
with shelve.open("data.shelf") as shelf:
    shelf["scale"] = float(scale)
connection = sqlite3.connect("data.db")
connection.execute("drop table if exists settings")
connection.execute("create table settings (scale)")
connection.execute("insert into settings values (?)", [float(scale)])
connection.commit()
connection.close()
"""


@pytest.fixture(scope="module")
def reports(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    """Of a process before the edit and one after it: what each use gave here and in plain JAX, and its traces here."""
    folder = tmp_path_factory.mktemp("files")
    block = f"um_{os.getpid()}"
    reads = IMPORTS.replace("um_block", block) + "\nfrom . import code as _\nimport um_data as package\n"
    for number, use in enumerate(READS.values()):
        reads += f"\n\ndef reads_{number}():\n    return {use}\n"
    address = f"unix:{os.environ['XDG_RUNTIME_DIR']}/changed.sock"
    environment = {**os.environ, "JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local"}
    found = []
    with new_daemon(address):
        for scale in ("2.0", "3.0"):
            _write(folder, scale)
            (folder / "um_data" / "reads.py").write_text(f"{reads}\n\nCOUNT = {len(READS)}\n")
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"import sys; sys.path += [{str(folder)!r}, {str(folder / 'dists')!r}]\n{PROGRAM}",
                ],
                env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
                cwd=folder,
            )
            assert done.returncode == 0, done.stderr
            found.append(dict(zip(READS, json.loads(done.stdout.splitlines()[-1]), strict=True)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("use", READS)
def test_an_edit_is_seen_by_the_next_process(reports: list[dict[str, list[Any]]], use: str) -> None:
    before, after = (report[use] for report in reports)
    assert before[:2] == [2.0, 2.0]
    assert after[:2] == [3.0, 3.0]
    assert before[2] == after[2] == 1
