#!/usr/bin/env python3
"""Writes what scripts/windows/try_tasks.sh needs: small networks of the tests, pictures, frames and a map of depth.

PYTHONPATH=scripts scripts/windows/task_inputs.py FOLDER
"""

from __future__ import annotations

import shutil
import struct
import sys
import zlib
from pathlib import Path

from small_models import ROOT, write_pipeline, write_restorer

PROFILE = """\
name: NAME
provider: cpu
precision: fp32
tasks:
  TASKS
floors: { psnr_db: 100, cosine: 0.999999 }
"""
PROFILES = {
    "holes": "inpaint: { tiles: [48x48, 64x96] }",
    "faces": "upscale: { tiles: [16x16, 64x64, 128x128] }",
    # As in tests/src/golden_pipelines.rs.
    "small": "unet: { tiles: [8x8] }\n  vae_encoder: { tiles: [64x64] }\n  vae_decoder: { tiles: [8x8] }",
}


def png(width: int, height: int) -> bytes:
    """A picture of smooth colours."""
    rows = b"".join(b"\0" + row(width, y, 0) for y in range(height))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    framed = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def row(width: int, y: int, frame: int) -> bytes:
    """A row of red, green and blue."""
    return bytes(
        value % 256 for x in range(width) for value in (7 * x + 11 * frame, 5 * y + 3 * frame, x * y + frame)
    )


def main() -> None:
    tests, folder = ROOT / "tests", Path(sys.argv[1])
    for name, tasks in PROFILES.items():
        text = PROFILE.replace("NAME", name).replace("TASKS", tasks)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    shutil.copy(tests / "profiles/small-tiles.yaml", folder)
    for name in ("picture", "mask"):
        shutil.copy(tests / f"golden-pipelines/inputs/{name}.png", folder)
    for name in ("lama", "gfpgan"):
        shutil.copy(tests / f"golden-retouch/{name}/checkpoint.safetensors", folder / f"{name}.safetensors")
    shutil.copy(tests / "golden-video-vae/seedvr2/ema_vae.safetensors", folder)
    shutil.copytree(tests / "golden-diffusers/vae", folder / "vae", ignore=shutil.ignore_patterns("*.golden.*"))
    for name in ("sd", "sd-inpainting", "xl"):
        write_pipeline(folder / f"{name}.folder", name)
    write_restorer(folder / "restorer")

    (folder / "face-in.png").write_bytes(png(32, 32))
    for name, height in (("frames", 24), ("small-frames", 16)):
        frames = b"".join(row(32, y, frame) for frame in range(7) for y in range(height))
        (folder / f"{name}.rgb").write_bytes(frames)
    # Luma of 32×24, and two planes of chroma of 16×12.
    planes = (bytes((16 + 5 * at + 3 * frame) % 220 for at in range(32 * 24 * 3 // 2)) for frame in range(7))
    stream = b"YUV4MPEG2 W32 H24 F25:1 Ip A1:1 C420jpeg\n" + b"".join(b"FRAME\n" + frame for frame in planes)
    (folder / "frames.y4m").write_bytes(stream)
    # Metres, with a hole.
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (64, 64), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    metres = struct.pack("<4096f", *(0 if at % 97 == 0 else 1 + at / 4096 for at in range(4096)))
    (folder / "map.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + metres)


if __name__ == "__main__":
    main()
