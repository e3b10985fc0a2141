#!/usr/bin/env python3
"""Compares `engine-builder push` and `runtime pull` of a large engine with `cp` and SHA-256 of the same files.

    apt install docker-registry
    make build && scripts/bench_registry.py [--gigabytes 5] [--rounds 3] [--json OUT.json]

The engine is that of compact-x4 with a weights file of random bytes in the place of its own; nothing runs it. The
registry is Debian's docker-registry on this machine, empty before each push. A ratio is the time of `cp` plus
`sha256sum` over that of the command in the same round, so higher is better. Peak memory is the largest resident size of
the command's process, as the system tells it at its end. Needs three times the engine's size in the folder for
temporary files (TMPDIR), and changes nothing elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import ROOT, binaries, measured

CHUNK = 1 << 24


def large_engine(folder: Path, gigabytes: float) -> Path:
    """The demo engine with a large file of weights."""
    engine = folder / "engine"
    build = [binaries() / "engine-builder", "build", ROOT / "models/compact-x4.yaml"]
    profile = ROOT / "tests/profiles/small-tiles.yaml"
    subprocess.run([*build, "--profile", profile, "-o", engine], check=True, capture_output=True)
    digest = hashlib.sha256()
    left = size = int(gigabytes * 1e9)
    with (engine / "model.weights").open("wb") as file:
        while left:
            chunk = os.urandom(min(left, CHUNK))
            file.write(chunk)
            digest.update(chunk)
            left -= len(chunk)
        os.fsync(file.fileno())
    path = engine / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["model.weights"] = {"bytes": size, "sha256": digest.hexdigest()}
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    return engine


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """An empty registry on a free port."""
    root = folder / "registry"
    root.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{}".format(free.getsockname()[1])
    settings = folder / "registry.yml"
    settings.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {root}}}}}\nhttp: {{addr: {address}}}\n"
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(["docker-registry", "serve", str(settings)], **quiet)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0:
                    break
            time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = large_engine(folder, arguments.gigabytes)
        for number in range(arguments.rounds):
            copy = folder / "copy"
            # Whatever is written is on the disk before the next thing begins.
            os.sync()
            copying = measured("cp", "-r", engine, copy).seconds
            digesting = measured("sha256sum", *sorted(copy.iterdir())).seconds
            shutil.rmtree(copy)
            os.sync()
            with registry(folder) as address:
                reference = f"oci://{address}/large:1"
                push = measured(binaries() / "engine-builder", "push", engine, reference)
                os.sync()
                pulled = folder / "pulled"
                pull = measured(binaries() / "runtime", "pull", reference, "-o", pulled)
                if (pulled / "manifest.json").read_bytes() != (engine / "manifest.json").read_bytes():
                    sys.exit("another engine was pulled")
                shutil.rmtree(pulled)
            base = copying + digesting
            rounds.append({
                "cp_seconds": copying, "sha256_seconds": digesting,
                "push_seconds": push.seconds, "pull_seconds": pull.seconds,
                "push_ratio": base / push.seconds, "pull_ratio": base / pull.seconds,
                "push_memory_mb": push.peak_bytes / 1e6, "pull_memory_mb": pull.peak_bytes / 1e6,
            })
            print(f"round {number + 1}: cp {copying:.1f} s, sha256sum {digesting:.1f} s, push {push.seconds:.1f} s "
                  f"({base / push.seconds:.2f}x), pull {pull.seconds:.1f} s ({base / pull.seconds:.2f}x)", flush=True)
    print(f"{arguments.gigabytes} GB, median of {len(rounds)} rounds")
    for command in ("push", "pull"):
        ratio = statistics.median(each[f"{command}_ratio"] for each in rounds)
        memory = max(each[f"{command}_memory_mb"] for each in rounds)
        print(f"{command}: {ratio:.2f} times as fast as cp and sha256sum, peak memory {memory:.0f} MB")
    if arguments.json:
        arguments.json.write_text(json.dumps({"gigabytes": arguments.gigabytes, "rounds": rounds}, indent=2) + "\n")


main()
