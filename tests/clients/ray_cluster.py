"""Enlarges pictures on a local Ray cluster of two workers, kills one in the middle, and compares with `runtime infer`.

    python3 -m venv target/ray-venv
    target/ray-venv/bin/pip install "$(ls target/wheels/*.whl)[cpu,ray,pillow]" "moto[s3,server]"
    target/ray-venv/bin/python tests/clients/ray_cluster.py engines/cpu/compact-x4 --pictures 500

Not part of CI, because Ray is large. Every result must be there once and have the program's pixels, and a second run
must make nothing. Then some of the pictures go from a bucket of moto's S3 to another place there: after half of the
results are taken away, a second run makes these alone.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import ray
from PIL import Image
from pyarrow import fs

import tileforge.ray

# Pictures that go through S3.
STORED = 40
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


@contextlib.contextmanager
def bucket() -> Iterator[tuple[fs.FileSystem, str]]:
    """A bucket of moto's S3: its file system, and the URI of a folder in it but for the folder's name, `{}`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", address.rpartition(":")[2]]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        uri = f"s3://key:secret@bucket/{{}}?scheme=http&endpoint_override={address}&allow_bucket_creation=true"
        files, _ = fs.FileSystem.from_uri(uri.format("photos"))
        for _ in range(100):
            with contextlib.suppress(OSError):
                files.create_dir("bucket")
                break
            time.sleep(0.1)
        yield files, uri
    finally:
        server.terminate()
        server.wait()


def check_s3(photos: Path, expected: Path, engine: Path) -> None:
    """Pictures from S3 to S3, on the cluster that is connected."""
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))[:STORED]
    with bucket() as (files, uri):
        for name in names:
            with files.open_output_stream(f"bucket/photos/{name}") as stream:
                stream.write((photos / name).read_bytes())
        folders = [uri.format(name) for name in ("photos", "large")]
        made = [tileforge.ray.enlarge(*folders, engine, concurrency=2)]
        for name in names[::2]:
            files.delete_file(f"bucket/large/{name}")
        made += [tileforge.ray.enlarge(*folders, engine, concurrency=2) for _ in range(2)]
        assert made == [len(names), len(names[::2]), 0], made
        for name in names:
            with files.open_input_file(f"bucket/large/{name}") as stream:
                one = numpy.asarray(Image.open(stream))
            with Image.open(expected / name) as other:
                assert numpy.array_equal(one, numpy.asarray(other)), name
    print(f"from S3 to S3: {made[0]} pictures, then the {made[1]} that were taken away, then {made[2]}")


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
    line = [Path(sys.executable).parent / "runtime", "infer", "--engine", arguments.engine, "--input", photos]
    begun = time.perf_counter()
    subprocess.run([*line, "--output", expected, "--recursive"], check=True, stdout=subprocess.DEVNULL)
    alone = time.perf_counter() - begun
    ray.init(num_cpus=2)
    killer = threading.Thread(target=kill_one, args=(output, arguments.pictures // 3))
    killer.start()
    begun = time.perf_counter()
    made = tileforge.ray.enlarge(str(photos), str(output), arguments.engine, concurrency=2)
    took = time.perf_counter() - begun
    killer.join()
    again = tileforge.ray.enlarge(str(photos), str(output), arguments.engine, concurrency=2)
    names = sorted(path.relative_to(expected) for path in expected.rglob("*.png"))
    results = sorted(path.relative_to(output) for path in output.rglob("*.png"))
    assert results == names and len(names) == arguments.pictures, (len(results), len(names))
    for name in names:
        with Image.open(output / name) as one, Image.open(expected / name) as other:
            assert numpy.array_equal(numpy.asarray(one), numpy.asarray(other)), name
    assert (made, again) == (arguments.pictures, 0), (made, again)
    print(f"{made} pictures: {took:.1f} s with two workers, one killed; {alone:.1f} s by runtime infer; again: {again}")
    check_s3(photos, expected, arguments.engine)
    ray.shutdown()


if __name__ == "__main__":
    main()
