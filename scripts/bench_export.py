#!/usr/bin/env python3
"""Measures the export of a full-size SDXL UNet, as docs/benchmarks.md reports it.

    cargo build --release && cargo build --release --package tileforge-runtime --example load_time
    scripts/bench_export.py FOLDER [--runs 5]

FOLDER is on a disk with 16 GB to spare; the script removes what it makes there. It needs only the standard library.
Times of copies are ratios to `cp` of the same file, in turns within one run. Memory is the process's own peak.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from commands import binaries, measured, xtask

BIN = binaries()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder.resolve()) as name:
        folder = Path(name)
        checkpoint = folder / "sdxl.safetensors"
        xtask("synth", "UNet2DConditionModel", "--preset", "sdxl-base", "--data-type", "f16", "-o", checkpoint)
        print(f"checkpoint: {checkpoint.stat().st_size:,} bytes")
        # In another folder, so that the weights have to be linked.
        (folder / "link").mkdir()
        links = [
            measured(BIN / "exporter", "export", checkpoint, "-o", folder / "link" / "unet.onnx") for _ in range(5)
        ]
        print(links[0].talk.strip())
        print(
            f"link: {statistics.median(run.seconds for run in links):.2f} s, at most "
            f"{max(run.peak_bytes for run in links) / 1e6:.0f} MB (median of 5)"
        )
        load = measured(BIN / "examples" / "load_time", folder / "link" / "unet.onnx", "--unoptimised")
        print(f"ONNX Runtime loads it by path: {load.seconds:.1f} s, {load.peak_bytes / 1e6:.0f} MB")
        copies, plain = [], []
        for _ in range(arguments.runs):
            # Waits until the disk has finished the previous run's writes, which would slow down the next run.
            os.sync()
            plain.append(measured("cp", checkpoint, folder / "copy.safetensors").seconds)
            (folder / "copy.safetensors").unlink()
            os.sync()
            copies.append(
                measured(BIN / "exporter", "export", checkpoint, "-o", folder / "copy.onnx", "--weights", "copy")
            )
            (folder / "copy.weights").unlink()
        times = [run.seconds for run in copies]
        ratio = statistics.median(copy / cp for copy, cp in zip(times, plain))
        print(
            f"copy: {[round(t, 1) for t in times]} s, cp: {[round(t, 1) for t in plain]} s, median ratio "
            f"{ratio:.2f}, at most {max(run.peak_bytes for run in copies) / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
