#!/usr/bin/env python3
"""Times engines on the libraries for processors, in turns and in random order, each run a process of its own.

    scripts/bench_openvino.py --size 512x512 --rounds 5 \
        engines/cpu/compact-x4:cpu engines/openvino/compact-x4:openvino

Each argument is an engine and the provider that runs it. Prints the median time of a picture (`runtime bench`, its
`p50_ms`), its ratio to that of the first argument, the time to open the session, and the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Seconds between processes, so that what the system writes and frees after one does not slow down the next.
PAUSE = 0.5


def measured(engine: str, provider: str, arguments: argparse.Namespace) -> dict:
    runtime = REPOSITORY / "target" / "release" / "runtime"
    command = [runtime, "bench", "--engine", engine, "--provider", provider, "--passes", "1", "--json"]
    command += ["--runs", str(arguments.runs), "--warm-up", "1"]
    command += ["--size", arguments.size] if arguments.size else []
    command += ["--threads", str(arguments.threads)] if arguments.threads else []
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{engine} on {provider}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="+", metavar="ENGINE:PROVIDER")
    parser.add_argument("--size", help="the picture's, WIDTHxHEIGHT")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each way")
    parser.add_argument("--runs", type=int, default=5, help="pictures in each process")
    arguments = parser.parse_args()
    found: dict[str, list[dict]] = {way: [] for way in arguments.ways}
    for _ in range(arguments.rounds):
        for way in random.sample(arguments.ways, len(arguments.ways)):
            engine, _, provider = way.rpartition(":")
            time.sleep(PAUSE)
            found[way].append(measured(engine, provider, arguments))
    first = [each["latency"]["p50_ms"] for each in found[arguments.ways[0]]]
    for way, reports in found.items():
        times = [each["latency"]["p50_ms"] for each in reports]
        ratio = statistics.median(one / base for one, base in zip(times, first))
        opening = statistics.median(each["session_seconds"] for each in reports)
        peak = max(each["peak_memory_bytes"] for each in reports) / (1 << 20)
        print(
            f"{way:<60} {statistics.median(times):9.1f} ms  {ratio:5.2f}  opening {opening:5.2f} s  peak {peak:6.0f} MiB"
        )


if __name__ == "__main__":
    main()
