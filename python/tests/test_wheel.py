"""The packing of the wheel for Windows, as far as it needs no programs for Windows."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY


@pytest.fixture(scope="module")
def backend() -> ModuleType:
    specification = importlib.util.spec_from_file_location("build_backend", REPOSITORY / "python/build_backend.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # A class with fields looks for its module there.
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def program(date: int, checksum: int, length: int) -> bytes:
    """What begins as a program for Windows: a signature, the headers' place, a date and a checksum in them."""
    content = bytearray(b"MZ" + bytes(range(256)) * 256)[:length]
    content[60:64] = (128).to_bytes(4, "little")
    content[128 + 8 : 128 + 12] = date.to_bytes(4, "little")
    content[128 + 88 : 128 + 92] = checksum.to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize("length", [4000, 4001])
def test_a_program_for_windows_has_the_date_of_the_wheel(backend: ModuleType, length: int) -> None:
    made = backend.with_date(program(1, 2, length))
    assert made == backend.with_date(program(3, 4, length)) and len(made) == length
    assert int.from_bytes(made[136:140], "little") == backend.SECONDS
    # Microsoft's checksum, word for word.
    bare = made[: 128 + 88] + bytes(4) + made[128 + 92 :]
    checksum = 0
    for place in range(0, length, 2):
        checksum += int.from_bytes(bare[place : place + 2], "little")
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    assert int.from_bytes(made[128 + 88 : 128 + 92], "little") == checksum + length
    assert made[:136] + made[140:216] + made[220:] == bare[:136] + bare[140:216] + bare[220:]


def test_a_program_of_another_system_is_refused(backend: ModuleType) -> None:
    with pytest.raises(SystemExit, match="for Windows on x86-64"):
        backend.windows_tag([Path(sys.executable).resolve()])


def test_what_was_not_built_is_named(backend: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"build_windows\.sh.*runtime\.exe"):
        backend.pack(tmp_path, tmp_path / backend.WINDOWS.library, tmp_path, backend.WINDOWS)
