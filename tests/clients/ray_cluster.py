"""Enlarges pictures on a local Ray cluster of two workers, kills one in the middle, and compares with `runtime infer`.

    python3 -m venv target/ray-venv
    target/ray-venv/bin/pip install "$(ls target/wheels/*.whl)[cpu,ray,pillow]"
    target/ray-venv/bin/python tests/clients/ray_cluster.py engines/cpu/compact-x4 --pictures 500

Not part of CI, because Ray is large. Every result must be there once and have the program's pixels, and a second run
must make nothing.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy
import ray
from PIL import Image

import tileforge.ray

PHOTO = Path(__file__).resolve().parents[1] / "images" / "coffee.png"


def workers() -> list[int]:
    """The processes of this user that enlarge for Ray."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.stat().st_uid == os.getuid():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                # It has ended meanwhile.
                continue
            if line.startswith(b"ray::MapWorker(MapBatches(Files))"):
                found.append(int(folder.name))
    return found


def kill_one(output: Path, count: int) -> None:
    """Kills a worker when so many results are there."""
    while len(list(output.rglob("*.png"))) < count:
        time.sleep(0.05)
    process = workers()[0]
    os.kill(process, signal.SIGKILL)
    print(f"killed worker {process}")


def main() -> None:
    """Checks everything."""
    parser = argparse.ArgumentParser(description="Check tileforge.ray on a local cluster.")
    parser.add_argument("engine", type=Path, help="an engine of scale 1 or more")
    parser.add_argument("--pictures", type=int, default=500, help="how many")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ray-cluster-"))
    photos, output, expected = work / "photos", work / "large", work / "expected"
    (photos / "deeper").mkdir(parents=True)
    with Image.open(PHOTO) as photo:
        for number in range(arguments.pictures):
            left, top = number % 200, number % 100
            part = photo.convert("RGB").crop((left, top, left + 48 + number % 9, top + 40))
            part.save(photos / ("deeper" if number % 7 == 0 else ".") / f"{number:04}.png")
    ray.init(num_cpus=2)
    killer = threading.Thread(target=kill_one, args=(output, arguments.pictures // 3))
    killer.start()
    begun = time.perf_counter()
    made = tileforge.ray.enlarge(str(photos), str(output), arguments.engine, concurrency=2)
    took = time.perf_counter() - begun
    killer.join()
    again = tileforge.ray.enlarge(str(photos), str(output), arguments.engine, concurrency=2)
    ray.shutdown()
    line = [Path(sys.executable).parent / "runtime", "infer", "--engine", arguments.engine, "--input", photos]
    begun = time.perf_counter()
    subprocess.run([*line, "--output", expected, "--recursive"], check=True, stdout=subprocess.DEVNULL)
    alone = time.perf_counter() - begun
    names = sorted(path.relative_to(expected) for path in expected.rglob("*.png"))
    results = sorted(path.relative_to(output) for path in output.rglob("*.png"))
    assert results == names and len(names) == arguments.pictures, (len(results), len(names))
    for name in names:
        with Image.open(output / name) as one, Image.open(expected / name) as other:
            assert numpy.array_equal(numpy.asarray(one), numpy.asarray(other)), name
    assert (made, again) == (arguments.pictures, 0), (made, again)
    print(f"{made} pictures: {took:.1f} s with two workers, one killed; {alone:.1f} s by runtime infer; again: {again}")


if __name__ == "__main__":
    main()
