#!/usr/bin/env python3
"""Makes the golden data of this folder with PyTorch's generator of the CPU.

    python3 -m pip install -r tests/golden-random/requirements.txt
    python3 tests/golden-random/generate.py              writes every case
    python3 tests/golden-random/generate.py --check      makes every case in memory, compares it with the files
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 100_000
# PyTorch uses the lower 32 bits of a seed.
SEEDS = [0, 42, 2**32 + 5, 2**63 - 1]
# Elements of tensors that are drawn one after the other: below 16, whole blocks, and a last block that is not whole.
COUNTS = [1, 16, 2, 17, 15, 31, 1000, 3, 2048]


def tensors(seed: int) -> File:
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = {str(index): torch.randn(count, generator=generator) for index, count in enumerate(COUNTS)}
    return drawn, {"seed": str(seed), "generator": f"torch {version('torch')}"}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        raise SystemExit("expected a processor with AVX2: without it, PyTorch's numbers have other last bits")
    files = {f"seed-{seed}.safetensors": tensors(seed) for seed in SEEDS}
    return write(FOLDER, [("torch-cpu", files, f"{len(SEEDS)} seeds")], TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
