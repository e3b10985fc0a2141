"""The package: its import, its types, its scripts, and other packages beside it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY

import tileforge

Script = Callable[..., str]


def test_it_is_the_wheel_that_is_tested() -> None:
    assert Path(tileforge.__file__).is_relative_to(sys.prefix)


def test_importing_it_is_quick_and_changes_nothing(script: Script) -> None:
    text = """
import os, signal, sys, time
before = dict(os.environ), os.getcwd(), [signal.getsignal(number) for number in signal.valid_signals()]
begun = time.perf_counter()
import tileforge
took = time.perf_counter() - begun
assert "numpy" not in sys.modules and "asyncio" not in sys.modules
after = dict(os.environ), os.getcwd(), [signal.getsignal(number) for number in signal.valid_signals()]
assert before == after
print(took)
"""
    assert min(float(script(text)) for _ in range(3)) < 0.1


def test_opening_and_running_changes_nothing(script: Script, engines: Path) -> None:
    text = """
import locale, os, signal, sys, tileforge, numpy as np
def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return dict(os.environ), os.getcwd(), handlers, locale.setlocale(locale.LC_ALL), np.geterr(), os.umask(0o22)
os.umask(0o22)
before = state()
tileforge.open(sys.argv[1]).upscale(np.zeros((16, 16), np.uint8))
assert state() == before
assert "onnxruntime" not in sys.modules
"""
    script(text, engines / "upscale")


@pytest.mark.parametrize("order", ["before", "between", "after"])
def test_onnxruntime_is_imported_in_the_same_process(order: str, script: Script, engines: Path) -> None:
    other = """
import onnxruntime
def run_other():
    session = onnxruntime.InferenceSession(sys.argv[2])
    return session.run(None, {"image": image})[0]
"""
    text = "import sys, numpy as np\nimage = np.random.default_rng(1).random((1, 3, 24, 24), np.float32)\n"
    text += other if order == "before" else ""
    text += "import tileforge\nengine = tileforge.open(sys.argv[1])\n"
    text += other if order == "between" else ""
    text += "made = engine.run({'image': image})['upscaled']\n"
    text += other if order == "after" else ""
    # Our session computes convolutions with kernels of its own, by which results differ in rounding.
    text += "assert np.abs(run_other() - made).max() < 1e-5\n"
    text += "assert np.array_equal(engine.run({'image': image})['upscaled'], made)\n"
    graph = next((engines / "upscale").glob("model-1x3x*.onnx"))
    script(text, engines / "upscale", graph)


def test_a_missing_library_is_said(script: Script, engines: Path) -> None:
    text = """
import sys, tileforge
from tileforge import _libraries
_libraries._folder = lambda package: None
try:
    tileforge.open(sys.argv[1])
except tileforge.Failed as error:
    print(error)
"""
    assert "pip install onnxruntime" in script(text, engines / "upscale")


def test_other_interpreters_are_refused(script: Script) -> None:
    text = """
import _xxsubinterpreters as interpreters
other = interpreters.create()
try:
    interpreters.run_string(other, "import tileforge")
except interpreters.RunFailedError as error:
    print(error)
"""
    if sys.version_info >= (3, 13):
        text = text.replace("_xxsubinterpreters", "_interpreters").replace("RunFailedError", "InterpreterError")
    assert "main interpreter" in script(text)
    assert "main interpreter" in script("import tileforge\n" + text)


def test_its_types(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    line += ["--no-error-summary", "--config-file", str(REPOSITORY / "python/pyproject.toml")]
    environment = {**os.environ, "MYPYPATH": ""}
    nodes = str(REPOSITORY / "python/comfyui")
    package = ["-p", "tileforge"]
    # On each system, a checker looks at that system's side of `tileforge/_system.py`.
    windows = ["--platform", "win32", *package]
    for checked in (package, windows, [str(Path(__file__).with_name("typed_use.py"))], [nodes]):
        done = subprocess.run([*line, *checked], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout


def test_its_programs_are_scripts() -> None:
    for name in ("exporter", "engine-builder", "runtime", "tileforge-server"):
        line = [Path(sys.executable).parent / name, "--version"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert done.stdout.strip().endswith(tileforge.__version__), done.stdout


def test_public_names_have_documentation() -> None:
    import inspect

    for name in tileforge.__all__:
        if not name.startswith("__"):
            assert inspect.getdoc(getattr(tileforge, name)), name
    for name, member in inspect.getmembers(tileforge.Engine):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name
    with pytest.raises(AttributeError):
        _ = tileforge.nothing  # type: ignore[attr-defined]


def examples() -> list[tuple[int, str]]:
    """The examples of docs/python.md, with the lines where they begin."""
    text = (REPOSITORY / "docs/python.md").read_text()
    parts = text.split("```python\n")
    lines = [part.count("\n") + 1 for part in parts]
    begins = [sum(lines[: number + 1]) for number in range(len(lines))]
    return [(begins[number], part.split("```")[0]) for number, part in enumerate(parts[1:])]


def test_the_examples_of_the_document(engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "engines").symlink_to(engines)
    for name in ("coffee.png", "compact-x4.safetensors"):
        source = REPOSITORY / ("tests/images" if name.endswith("png") else "models") / name
        (tmp_path / name).symlink_to(source)
    assert len(examples()) > 5
    names: dict[str, object] = {"__name__": "example"}
    for line, text in examples():
        # So that an error names the line of the document.
        exec(compile("\n" * (line - 1) + text, str(REPOSITORY / "docs/python.md"), "exec"), names)
