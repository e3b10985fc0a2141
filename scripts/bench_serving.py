#!/usr/bin/env python3
"""Compares the server with LitServe, MLServer and FastAPI under load, on the same library, precision and threads.

    python3 -m venv PEERS && PEERS/bin/pip install litserve==0.2.19 mlserver==1.7.1 uvicorn==0.54.0 \\
        onnxruntime==1.31.1 openvino==2026.4.1 pillow==13.0.0
    cargo install oha@1.16.0
    make build && scripts/bench_serving.py --peers PEERS/bin/python [--rounds 3] [--seconds 5]

All serve `models/compact-x4.safetensors` in FP32. Peers run a graph of exactly the request's size
(scripts/serving_peers/); ours is an engine that `engine-builder` makes. Two kinds of requests:

- `tensor`: 64² as FP32 bytes, and an answer of 256² as bytes. Ours takes them by the Open Inference Protocol's
  extension for binary tensors.
- `picture`: a PNG of 256², and an answer of 1024² as a PNG.

Every run is a new process, and servers come in random order in each round, with pauses. A run has a warm-up, then as
many requests as are answered on some connections at the same time (the throughput), and then requests at a steady rate
of 80 % of that: the time of each counts from when it should have been sent. Memory is that of all processes of a server
(PSS): at rest after the warm-up, and the most under load. Tensors are compared with ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from urllib.request import Request, urlopen

from commands import ROOT, binaries, free_port, run

OURS = "tileforge-server"
PEERS = ("litserve", "mlserver", "fastapi")
LIBRARIES = ("onnxruntime", "openvino")
SIDES = {"tensor": 64, "picture": 256}
CONNECTIONS = 8
PAUSE = 2.0


def processes(root: int) -> list[int]:
    """A process with all below it."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                children[int((entry / "stat").read_text().rpartition(")")[2].split()[1])].append(int(entry.name))
    found = [root]
    for process in found:
        found += children[process]
    return found


def memory(root: int) -> float:
    """Megabytes of a process and all below it; what they share counts once."""
    total = 0
    for process in processes(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1e3


class Work:
    """Graphs, engines and requests, made once."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder, self.arguments = folder, arguments
        checkpoint = ROOT / "models/compact-x4.safetensors"
        for kind, side in SIDES.items():
            shapes = f"image:1x3x{side}x{side}"
            run(binaries() / "exporter", "export", checkpoint, "--shapes", shapes, "-o", self.graph(kind))
        for library, profile in zip(LIBRARIES, ("cpu", "openvino")):
            run(binaries() / "engine-builder", "build", ROOT / "models/compact-x4.yaml", "--profile", profile,
                "--precision", "fp32", "-o", folder / library / "compact-x4")  # fmt: skip
        script = ROOT / "scripts/serving_peers/examples.py"
        environment = {**os.environ, "GRAPH": str(self.graph("tensor"))}
        subprocess.run([arguments.peers, script, folder, ROOT / "tests/images/coffee.png"], env=environment, check=True)

    def graph(self, kind: str) -> Path:
        return self.folder / f"{kind}.onnx"

    def body(self, kind: str) -> Path:
        return self.folder / f"{kind}.body"

    def expected(self, kind: str) -> bytes:
        return (self.folder / f"{kind}.expected").read_bytes()


class Server:
    """A server of a way, until `stop`."""

    def __init__(self, work: Work, way: str, library: str, kind: str) -> None:
        port, threads = free_port(), str(work.arguments.threads)
        self.headers, self.body = {"Content-Type": "application/octet-stream"}, work.body(kind).read_bytes()
        if way == OURS:
            command = [binaries() / OURS, "serve", "--engines", work.folder / library, "--http", f"127.0.0.1:{port}",
                       "--grpc", "off", "--streams", work.arguments.at_once, "--threads", threads]  # fmt: skip
            environment = {}
            self.path = {"tensor": "/v2/models/compact-x4/infer", "picture": "/v1/upscale"}[kind]
            if kind == "tensor":
                shape = [1, 3, SIDES[kind], SIDES[kind]]
                sizes = {"binary_data_size": len(self.body)}
                image = {"name": "image", "datatype": "FP32", "shape": shape, "parameters": sizes}
                head = {"inputs": [image], "parameters": {"binary_data_output": True}}
                text = json.dumps(head).encode()
                self.body = text + self.body
                self.headers["Inference-Header-Content-Length"] = str(len(text))
        else:
            command = [work.arguments.peers, ROOT / f"scripts/serving_peers/with_{way}.py", f"/{kind}"]
            environment = {"GRAPH": str(work.graph(kind)), "LIBRARY": library, "THREADS": threads,
                           "AT_ONCE": str(work.arguments.at_once), "PORT": str(port)}  # fmt: skip
            self.path = f"/{kind}"
        self.url = f"http://127.0.0.1:{port}{self.path}"
        self.log = open(work.folder / "log", "w+")  # noqa: SIM115, for the process
        environment = {**os.environ, **environment}
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdout=self.log,
                                        stderr=self.log, start_new_session=True)  # fmt: skip

    def ask(self) -> bytes:
        with urlopen(Request(self.url, self.body, self.headers), timeout=60) as answer:
            length = answer.headers.get("Inference-Header-Content-Length", 0)
            return answer.read()[int(length):]

    def wait(self) -> bytes:
        until = time.monotonic() + 120
        while True:
            try:
                return self.ask()
            except OSError as error:
                if time.monotonic() > until or self.process.poll() is not None:
                    self.log.seek(0)
                    raise RuntimeError(f"{self.url}: {error}: {self.log.read()[-2000:]}") from error
                time.sleep(0.2)

    def stop(self) -> None:
        for process in reversed(processes(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, 15)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
        self.log.close()


def load(work: Work, server: Server, seconds: float, rate: float | None) -> dict:
    """What oha reports: as many requests as are answered, or so many a second."""
    body = work.folder / "body"
    body.write_bytes(server.body)
    command = [work.arguments.oha, "--no-tui", "--output-format", "json", "-m", "POST", "-D", body, "-z", f"{seconds}s"]
    command += ["-c", CONNECTIONS if rate is None else 64]
    command += ["-w"] if rate is None else ["-w", "-q", f"{rate:.3f}", "--latency-correction"]
    for name, value in server.headers.items():
        command += ["-T", value] if name == "Content-Type" else ["-H", f"{name}: {value}"]
    report = json.loads(run(*command, server.url))
    statuses = report["statusCodeDistribution"]
    if set(statuses) != {"200"}:
        raise RuntimeError(f"{server.url}: {statuses} {report.get('errorDistribution')}")
    return report


def measured(work: Work, way: str, library: str, kind: str) -> dict:
    server = Server(work, way, library, kind)
    try:
        check(work, kind, server.wait())
        load(work, server, 1, None)
        time.sleep(PAUSE)
        rest, most, done = memory(server.process.pid), [0.0], threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                most[0] = max(most[0], memory(server.process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            throughput = load(work, server, work.arguments.seconds, None)["summary"]["requestsPerSec"]
            time.sleep(PAUSE)
            steady = load(work, server, work.arguments.seconds, 0.8 * throughput)["latencyPercentiles"]
        finally:
            done.set()
            watching.join()
        return {"throughput": throughput, "p50": steady["p50"] * 1e3, "p99": steady["p99"] * 1e3, "rest": rest,
                "load": most[0]}  # fmt: skip
    finally:
        server.stop()


def check(work: Work, kind: str, answer: bytes) -> None:
    if kind == "tensor":
        [found, wanted] = [memoryview(each).cast("f") for each in (answer, work.expected(kind))]
        far = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
        if not far < 1e-3:
            raise AssertionError(f"{far} from ONNX Runtime's output")
    elif not answer.startswith(b"\x89PNG"):
        raise AssertionError("no PNG")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, help="the Python that has the peers")
    parser.add_argument("--oha", default=shutil.which("oha") or "oha")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each run")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    parser.add_argument("--only", action="append", help="KIND/LIBRARY/SERVER, or the beginning of one")
    arguments = parser.parse_args()
    ways = [(kind, library, way) for kind in SIDES for library in LIBRARIES for way in (OURS, *PEERS)]
    if arguments.only:
        ways = [way for way in ways if any("/".join(way).startswith(only) for only in arguments.only)]
    found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), arguments)
        for number in range(arguments.rounds):
            for kind, library, way in random.sample(ways, len(ways)):
                figures = measured(work, way, library, kind)
                found[kind, library, way].append(figures)
                shown = ", ".join(f"{name} {figure:.1f}" for name, figure in figures.items())
                print(f"{number} {kind}/{library}/{way}: {shown}; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
                time.sleep(PAUSE)
    print("| request, library | server | requests a second | of ours | p50, p99 at 80 % | memory at rest, under load |")
    print("|---|---|---|---|---|---|")
    for kind, library, way in ways:
        rounds = found[kind, library, way]
        middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        ours = found.get((kind, library, OURS), rounds)
        ratio = statistics.median(one["throughput"] / other["throughput"] for one, other in zip(rounds, ours))
        print(f"| {kind}, {library} | {way} | {middle['throughput']:.1f} | {ratio:.2f} | {middle['p50']:.1f}, "
              f"{middle['p99']:.1f} ms | {middle['rest']:.0f}, {middle['load']:.0f} MB |")  # fmt: skip


if __name__ == "__main__":
    main()
