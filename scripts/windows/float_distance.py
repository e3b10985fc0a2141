#!/usr/bin/env python3
"""Compares two files of 32-bit floats (a .safetensors file, or weights without a head), and prints how far they differ.

scripts/windows/float_distance.py ONE OTHER LIMIT
"""

from __future__ import annotations

import array
import struct
import sys
from pathlib import Path


def floats(path: str) -> tuple[bytes, array.array[float]]:
    """What is in front of the numbers, and the numbers."""
    data, start = Path(path).read_bytes(), 0
    if path.endswith(".safetensors"):
        start = 8 + struct.unpack("<Q", data[:8])[0]
    return data[:start], array.array("f", data[start:])


def main() -> None:
    (head, one), (other_head, other) = floats(sys.argv[1]), floats(sys.argv[2])
    if head != other_head or len(one) != len(other):
        raise SystemExit("error: not the same tensors")
    distances = [abs(a - b) for a, b in zip(one, other) if a != b]
    worst = max(distances, default=0.0)
    print(f"{len(distances)} of {len(one)} numbers differ, by {worst:.1e} at most")
    if not worst <= float(sys.argv[3]):
        raise SystemExit(f"error: expected at most {sys.argv[3]}")


if __name__ == "__main__":
    main()
