#!/usr/bin/env python3
"""Compares two PNGs of 8 bits: prints their PSNR in dB, and fails below a limit.

    scripts/picture_psnr.py x86-64.png arm64.png [60]
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from pathlib import Path


def pixels(path: str) -> tuple[tuple[int, int, int], bytes]:
    """Width, height and channels, and the samples of all rows. The PNG specification has the filters in chapter 9."""
    data = Path(path).read_bytes()
    position, packed, size = 8, b"", None
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        body = data[position + 8 : position + 8 + length]
        position += 12 + length
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            channels = {0: 1, 2: 3, 4: 2, 6: 4}.get(colour)
            if depth != 8 or channels is None or interlaced:
                found = f"depth {depth}, colour type {colour}, interlacing {interlaced}"
                raise SystemExit(f"error: {path}: expected 8 bits, no palette and no interlacing, found {found}")
            size = (width, height, channels)
        elif kind == b"IDAT":
            packed += body
    if data[:8] != b"\x89PNG\r\n\x1a\n" or size is None:
        raise SystemExit(f"error: {path}: expected a PNG")
    width, height, channels = size
    stride, samples = width * channels, zlib.decompress(packed)
    rows, above = [], bytearray(stride)
    for row in range(height):
        start = row * (stride + 1)
        kind, line = samples[start], bytearray(samples[start + 1 : start + 1 + stride])
        for i in range(stride) if kind else ():
            left = line[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            if kind == 4:
                near = left + above[i] - corner
                distances = [(abs(near - value), order) for order, value in enumerate((left, above[i], corner))]
                predicted = (left, above[i], corner)[min(distances)[1]]
            else:
                predicted = {1: left, 2: above[i], 3: (left + above[i]) // 2}[kind]
            line[i] = (line[i] + predicted) & 255
        rows.append(bytes(line))
        above = line
    return size, b"".join(rows)


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    (size, one), (other_size, other) = pixels(sys.argv[1]), pixels(sys.argv[2])
    if size != other_size:
        print(f"error: expected equal sizes, found {size} and {other_size}", file=sys.stderr)
        return 1
    error = sum((a - b) ** 2 for a, b in zip(one, other)) / len(one)
    psnr = 10 * math.log10(255**2 / error) if error else math.inf
    different = sum(a != b for a, b in zip(one, other))
    largest = max((abs(a - b) for a, b in zip(one, other)), default=0)
    print(f"PSNR {psnr:.2f} dB; {different} of {len(one)} samples differ, by {largest} at most")
    limit = float(sys.argv[3]) if len(sys.argv) == 4 else 0
    if psnr < limit:
        print(f"error: expected at least {limit} dB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
