#!/usr/bin/env python3
"""Measures the figures of docs/benchmarks.md about the runtime on this machine. `make bench` calls it.

It needs only the standard library. Every figure is a ratio within one run, or memory, which does not depend on the
machine's load.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, binaries, run, xtask

BIN = binaries()
PHOTO = ROOT / "tests" / "images" / "coffee.png"


def infer(engine, source, target):
    return json.loads(
        run(BIN / "runtime", "infer", "--engine", engine, "--input", source, "--output", target, "--json")
    )


def share_of_run(engine, folder):
    """Seconds inside Session::run over seconds from the first tile to the last."""
    photo = folder / "1024.png"
    xtask("repeat", PHOTO, "1024x1024", "-o", photo)
    shares = []
    for _ in range(5):
        seconds = infer(engine, photo, folder / "out.png")["files"][0]["seconds"]
        shares.append(seconds["run"] / seconds["span_first_to_last_tile"])
    print(
        f"1024x1024: Session::run is {statistics.median(shares):.1%} of the time from the first tile to the last "
        f"(median of 5)"
    )


def start(engine, folder):
    """The time of a whole `runtime infer` over that of loading ONNX Runtime and opening the session."""
    photo = folder / "64.png"
    xtask("repeat", PHOTO, "64x64", "-o", photo)
    ratios = []
    for _ in range(21):
        report = infer(engine, photo, folder / "out.png")
        ratios.append(report["total_seconds"] / (report["load_seconds"] + report["session_seconds"]))
    print(
        f"64x64: the whole run takes {statistics.median(ratios):.2f} times loading and session (median of 21, "
        f"largest {max(ratios):.2f})"
    )


def offline_optimisation(folder):
    """The time of loading the engine's optimised graph over that of loading the exported graph."""
    checkpoint = folder / "x4plus.safetensors"
    xtask("synth", "RRDBNet", "--preset", "real-esrgan-x4plus", "-o", checkpoint)
    plain = folder / "plain"
    plain.mkdir()
    run(BIN / "exporter", "export", checkpoint, "-o", plain / "plain.onnx", "--shapes", "image:1x3x64x64")
    # Only the small tile: gates run the network, and a random network says as much at any size.
    profile = folder / "one-tile.yaml"
    profile.write_text(
        "name: one-tile\nprovider: cpu\nprecision: fp32\ntasks:\n  upscale: { tiles: [64x64] }\nfloors:\n  psnr_db: "
        "100\n  cosine: 0.999999\n"
    )
    engine = folder / "engine"
    run(BIN / "engine-builder", "build", checkpoint, "--profile", profile, "-o", engine)
    graphs = {"exported": plain / "plain.onnx", "engine": engine / "model-1x3x64x64.onnx"}
    times = {name: [] for name in graphs}
    for _ in range(9):
        for name, graph in graphs.items():
            times[name].append(float(run(BIN / "examples" / "load_time", graph)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(
        f"RRDBNet x4plus: the engine's graph loads in {medians['engine'] / medians['exported']:.2f} times the "
        f"exported one's time (medians of 9, alternated)"
    )


def large_photo(engine, folder, sixteen):
    """Peak memory of a photo of 144 megapixels."""
    photo = folder / "large.png"
    xtask("repeat", PHOTO, "12000x12000", "-o", photo, *(["--sixteen"] if sixteen else []))
    report = infer(engine, photo, folder / "out.png")
    print(
        f"12000x12000 at {16 if sixteen else 8} bits: peak {report['peak_memory_bytes'] / 2**20:.0f} MiB, "
        f"{report['files'][0]['tiles']} tiles"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--large",
        action="store_true",
        help="also upscale 12,000 x 12,000 pixels at 8 and 16 bits (20 minutes, 6 GB of disk)",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = folder / "compact-x4"
        run(BIN / "engine-builder", "build", ROOT / "models" / "compact-x4.yaml", "--profile", "cpu", "-o", engine)
        share_of_run(engine, folder)
        start(engine, folder)
        offline_optimisation(folder)
        if arguments.large:
            large_photo(engine, folder, sixteen=False)
            large_photo(engine, folder, sixteen=True)


if __name__ == "__main__":
    main()
