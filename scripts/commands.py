"""The commands of the repository, for scripts that measure."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def binaries() -> Path:
    """The folder of the programs that `make build` makes: target/release/, or another one that Cargo is set up for.

    TILEFORGE_BINARIES names one with programs that are built already, `xtask` among them: for machines without Cargo.
    """
    if built := os.environ.get("TILEFORGE_BINARIES"):
        return Path(built)
    metadata = run("cargo", "metadata", "--no-deps", "--format-version", "1")
    return Path(json.loads(metadata)["target_directory"]) / "release"


def run(*command: str | Path) -> str:
    """The standard output of a command. If it fails, an error with the end of its standard error."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise failure(command, done.stderr)
    return done.stdout


def xtask(*words: str | Path) -> str:
    """The standard output of a command for this repository alone."""
    return run(compiled_xtask(), *words)


@functools.cache
def compiled_xtask() -> Path:
    if "TILEFORGE_BINARIES" not in os.environ:
        run("cargo", "build", "--release", "--locked", "--package", "xtask")
    return binaries() / "xtask"


def failure(command: Sequence[str | Path], talk: str) -> RuntimeError:
    return RuntimeError(f"{' '.join(map(str, command))}\n{talk.strip()[-2000:]}")


@dataclass
class Measured:
    """What a command took, and what it wrote."""

    code: int
    seconds: float
    # Of the largest of its processes, mapped files included.
    peak_bytes: int
    output: str
    talk: str


def measured(*command: str | Path, allowed: Sequence[int] = (0,)) -> Measured:
    """Runs a command to its end. With another exit code than those, an error with the end of its standard error."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as talk:
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=output, stderr=talk)
        # Of this process alone: an earlier one may have had more memory.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        talk.seek(0)
        told = Measured(process.returncode, seconds, usage.ru_maxrss * 1024, output.read(), talk.read())
    if told.code not in allowed:
        raise failure(command, told.talk)
    return told


def free_port() -> int:
    """A port that is free, and so are the next ones most likely."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


if __name__ == "__main__":
    # For the Makefile. Inside the repository the path is relative, since make's targets cannot have spaces.
    folder = binaries()
    print(folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder)
