"""SeedVR2's own code as the reference, and the command line of the generators that use it. For the generators in the
folders golden-video-vae, golden-video-transformer and golden-restoration."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from golden_files import File, write

REFERENCE = "fe1b46978b2f6b8b08bd9d7fffed11b914ac527b"  # of naxci1/ComfyUI-SeedVR2.5


def use_checkout(path: Path) -> None:
    """Lets the modules of a checkout of the reference be imported. Only the pinned commit is accepted."""
    head = subprocess.run(
        ["git", "-C", str(path), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if head != REFERENCE:
        raise SystemExit(
            f"{path}: expected a checkout of {REFERENCE}, found {head or 'no git repository'}; README.md says how "
            f"to get it"
        )
    sys.path.insert(0, str(path))


def main(
    folder: Path,
    description: str,
    cases: Callable[[Path], Iterable[tuple[str, dict[str, File], str]]],
    total_bytes: int,
) -> int:
    """Makes or checks the golden data of a folder: the cases that `cases` makes with the checkout at a path, in at most
    `total_bytes`. Returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("reference", type=Path, help=f"a checkout of naxci1/ComfyUI-SeedVR2.5 at {REFERENCE}")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a file differs by more than 1e-6"
    )
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    return write(folder, cases(arguments.reference), total_bytes, arguments.check)
