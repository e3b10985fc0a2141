"""The commands of the repository, for scripts that measure."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path) -> str:
    """What a command prints; an error with what it says where it fails."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr.strip()[-2000:]}")
    return done.stdout
