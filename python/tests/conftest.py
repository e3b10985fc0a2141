"""Engines and pictures for the tests. `python/tests/package.rs` builds the engines and starts pytest."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tileforge

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINES = Path(os.environ.get("TILEFORGE_TEST_ENGINES", "engines"))


@pytest.fixture(scope="session")
def engines() -> Path:
    """The folder of the engines: upscale, inpaint, depth, depth_map, realtime, encoder, decoder, sd, restore."""
    assert ENGINES.is_dir(), "cargo test --release -p tileforge-python builds the engines and starts these tests"
    return ENGINES


@pytest.fixture(scope="session")
def upscaler(engines: Path) -> tileforge.Engine:
    """The demo engine, four times as large."""
    return tileforge.open(engines / "upscale")


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """A part of a photo, [90, 120, 3] of uint8."""
    with Image.open(REPOSITORY / "tests/images/coffee.png") as image:
        return np.asarray(image.convert("RGB"))[50:140, 100:220].copy()


@pytest.fixture(scope="session")
def runtime() -> Callable[..., str]:
    """The program `runtime` of the wheel."""

    def run(*arguments: object) -> str:
        line = [Path(sys.executable).parent / "runtime", *map(str, arguments)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def script() -> Callable[..., str]:
    """Runs lines of Python in another process, which must succeed; its standard output."""

    def run(text: str, *arguments: object, code: int = 0, timeout: float = 120) -> str:
        line = [sys.executable, "-c", text, *map(str, arguments)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=timeout)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
