"""Where a module's file lies decides whether it is user code."""

import json
import sys

import pytest

from jitclient.capture.user_code import installed


@pytest.fixture(autouse=True)
def fresh_answers():
    yield
    for function in (installed.is_user_module, installed.package_of, installed._holds_metadata):
        function.cache_clear()


@pytest.mark.parametrize(
    "name", ["os", "sys", "math", "json.decoder", "builtins", "zipimport", "numpy", "jax.numpy", "_abc"]
)
def test_installed(name):
    assert not installed.is_user_module(name)


@pytest.mark.parametrize("name", ["__main__", "", None, "um_nowhere", 3])
def test_user_code(name):
    assert installed.is_user_module(name)


@pytest.mark.parametrize("name", ["jitclient", "jitclient.capture.dump", "jitserver.cli"])
def test_ours_is_installed_wherever_it_lies(name):
    assert not installed.is_user_module(name)


def test_a_file_hides_a_module_of_the_standard_library(write):
    sys.modules.pop("this", None)
    try:
        write(this="K = 1\n")
        assert installed.is_user_module("this")
    finally:
        sys.modules.pop("this", None)


def test_target_folder_of_pip_is_installed(write, tmp_path):
    write(um_target="K = 1\n")
    assert installed.is_user_module("um_target")
    fresh_caches()
    (tmp_path / "um_target-1.0.dist-info").mkdir()
    assert not installed.is_user_module("um_target")


def test_editable_install_is_user_code(write, tmp_path):
    write(um_editable="K = 1\n")
    metadata = tmp_path / "um_editable-1.0.dist-info"
    metadata.mkdir()
    about = {"url": "file:///x", "dir_info": {"editable": True}}
    (metadata / "direct_url.json").write_text(json.dumps(about))
    assert installed.is_user_module("um_editable")


def test_site_packages_inside_a_project_is_installed(tmp_path, monkeypatch):
    folder = tmp_path / "venv" / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "um_vendored.py").write_text("K = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    assert not installed.is_user_module("um_vendored")
    assert installed.package_of("um_vendored.sub") == "um_vendored"


def test_packages():
    assert installed.package_of("numpy.linalg") == "numpy"
    assert installed.package_of("os.path") is None
    assert installed.package_of("jitclient.capture.codec") is None
    assert installed.package_of("um_nowhere") is None


def test_finding_a_module_imports_nothing(tmp_path, monkeypatch):
    package = tmp_path / "um_parent"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (package / "child.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.find_source("um_parent.child").origin == str(package / "child.py")
    assert "um_parent" not in sys.modules


def fresh_caches():
    for function in (installed.is_user_module, installed._holds_metadata):
        function.cache_clear()
