"""The commands of the repository, for scripts that measure."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def binaries() -> Path:
    """The folder of the programs that `make build` makes: target/release/, or another one that Cargo is set up for."""
    metadata = run("cargo", "metadata", "--no-deps", "--format-version", "1")
    return Path(json.loads(metadata)["target_directory"]) / "release"


def run(*command: str | Path) -> str:
    """The standard output of a command. If it fails, an error with the end of its standard error."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr.strip()[-2000:]}")
    return done.stdout


@dataclass
class Measured:
    """What a command took, and what it wrote."""

    code: int
    seconds: float
    # Of the largest of its processes, mapped files included.
    peak_bytes: int
    output: str
    talk: str


def measured(*command: str | Path) -> Measured:
    """Runs a command to its end, whatever its exit code."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as talk:
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=output, stderr=talk)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        output.seek(0)
        talk.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return Measured(code, seconds, usage.ru_maxrss * 1024, output.read(), talk.read())


def free_port() -> int:
    """A port that is free, and so are the next ones most likely."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


if __name__ == "__main__":
    # For the Makefile. Inside the repository the path is relative, since make's targets cannot have spaces.
    folder = binaries()
    print(folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder)
