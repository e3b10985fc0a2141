#!/usr/bin/env python3
"""Compares ways to send a film through an upscaler on the CPU, from file to file, in one run.

    python3 -m venv target/films && target/films/bin/pip install numpy safetensors onnx av onnxruntime==1.31.1 openvino
    make build
    target/films/bin/python scripts/bench_films.py [--rounds 3] [--divide N] [PART ...]

| part | film | network |
|---|---|---|
| compact | 540p to 4K | models/compact-x4.safetensors |
| spanf3 | 1080p to 4K | SPANF3 ×2 in its published size; its weights enlarge by nearest pixels and add a little noise |

| way | is |
|---|---|
| film | `runtime infer film.mkv` with an engine of the profile `cpu` |
| film-sized | the same with an engine for frames of this one size |
| film-openvino | the same with an engine of the profile `openvino` |
| pipe | `ffmpeg | runtime | ffmpeg` by hand, YUV4MPEG2 in both pipes, the engine of `film` |
| onnxruntime | a loop in Python: PyAV decodes and encodes, ONNX Runtime runs the graph of `exporter export` |
| openvino | the same with OpenVINO |

All compute in FP32 on two threads and encode with the same options of libx264. Every run is a new process, and the ways
take turns in random order, with pauses. Each run makes a film of few frames and then a longer one. "Whole" is the time
of the longer film from the start of the process to its end. "Frames a second" is what follows from the difference of
the two films, so it leaves out how long a way takes to start: for films of minutes, that does not matter. "Network" is
the share of the time of the longer film in which the network runs. "CPU" is the time of the processor for each frame
of all programs together, which depends less on what else runs on the machine. All films must look the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy
from commands import ROOT, binaries, run, xtask

OURS = "film"
THREADS = 2
ENCODER = "libx264"
# The encoder does not wait for later frames, as it does by default for 40: these films have fewer, so they would only
# be encoded when the network has ended.
ENCODER_OPTIONS = {"preset": "veryfast", "crf": "18", "x264-params": "rc-lookahead=0:sync-lookahead=0:bframes=0"}
RATE = 24
# Seconds between processes, so that what the system writes and frees after one does not slow down the next.
PAUSE = 1.0
FLOOR_DB = 40.0  # between our film and that of another way, whose conversion of colours is swscale's


@dataclass(frozen=True)
class Part:
    network: str
    width: int
    height: int
    scale: int
    # Frames of the short film and of the long one.
    frames: tuple[int, int]


PARTS = {
    "compact": Part("compact", 960, 540, 4, (2, 14)),
    "spanf3": Part("spanf3", 1920, 1080, 2, (2, 8)),
}


@dataclass
class Bench:
    """Where a comparison works, and with which programs."""

    folder: Path
    programs: Path
    part: Part
    # Why a way cannot run here.
    missing: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        return self.folder / name

    def film(self, number: int) -> Path:
        return self.file(f"source-{number}.mkv")


def nearest_spanf3(bench: Bench) -> Path:
    """SPANF3 in its published size. Random weights alone give values of 1e8, which cannot be compared or encoded."""
    import safetensors.numpy

    path = bench.file("spanf3.safetensors")
    xtask("synth", "SPANF3", "--preset", "spanf3-x2", "-o", path)
    tensors = safetensors.numpy.load_file(path)
    for name, tensor in tensors.items():
        if name.endswith(".bias"):
            tensor[:] = 0
        elif ".att_conv." in name or ".conv." in name:
            tensor *= 0.5
    pixels = 12  # three colours of 2×2 pixels each, which the first layer gets in the place of an image
    first = tensors["conv_1.1.sk.weight"]
    first[:] *= 0.1
    first[:pixels] = numpy.eye(pixels)[:, :, None, None]
    for number in range(3):
        tensors[f"conv_1.1.conv.{number}.weight"] *= 0.1
    joined = tensors["conv_cat.weight"]
    joined *= 0.01
    joined[:pixels, :pixels] = numpy.eye(pixels)[:, :, None, None]
    last = tensors["to_pixel.sk.weight"]
    last *= 0.01
    for output in range(len(last)):
        colour, row, column = output // 16, output % 16 // 4, output % 4
        last[output, :pixels] = 0
        last[output, 4 * colour + 2 * (row // 2) + column // 2] = 1
    for number in range(3):
        tensors[f"to_pixel.conv.{number}.weight"] *= 0.1
    safetensors.numpy.save_file(tensors, path)
    return path


def with_axes_from_end(graph: Path, changed: Path) -> None:
    """The same graph for OpenVINO 2026.4.1, which permutes channels wrongly where a Gather has the axis 1. Engines of
    the profile `openvino` are read like this, too."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Gather" and (attribute.name, attribute.i) == ("axis", 1):
                attribute.i = -3  # of [batch, channels, height, width]
    onnx.save(model, changed)


def prepare(bench: Bench) -> None:
    part = bench.part
    checkpoint = ROOT / "models/compact-x4.safetensors" if part.network == "compact" else nearest_spanf3(bench)
    build = partial(run, bench.programs / "engine-builder", "build", checkpoint, "--precision", "fp32")
    size = f"{part.width}x{part.height}"
    build("--profile", "cpu", "-o", bench.file("engine"))
    build("--profile", "cpu", "--size", size, "-o", bench.file("sized"))
    try:
        build("--profile", "openvino", "-o", bench.file("engine-openvino"))
    except RuntimeError as error:
        bench.missing["film-openvino"] = str(error).splitlines()[-1]
    shape = f"image:1x3x{part.height}x{part.width}"
    run(bench.programs / "exporter", "export", checkpoint, "--shapes", shape, "-o", bench.file("onnxruntime.onnx"))
    with_axes_from_end(bench.file("onnxruntime.onnx"), bench.file("openvino.onnx"))
    # The camera moves into a photo.
    photo = ROOT / "tests/images/coffee.png"
    moves = f"zoompan=z=1+0.01*on:x=iw/8+on:y=ih/8:d=1:s={size}:fps={RATE},format=yuv420p"
    for frames in part.frames:
        run("ffmpeg", "-y", "-loglevel", "error", "-loop", "1", "-i", photo, "-vf", moves, "-frames:v", str(frames),
            "-c:v", ENCODER, "-crf", "12", bench.film(frames))  # fmt: skip


def infer(bench: Bench, engine: str, *more: str | Path) -> list[str | Path]:
    return [bench.programs / "runtime", "infer", "--engine", bench.file(engine), "--threads", str(THREADS), "--json",
            *more]  # fmt: skip


def network_seconds(text: str) -> float:
    """The time in the network of the one film that a report is about. Messages may stand before it."""
    [film] = json.loads(text[text.index("{\n") :])["files"]
    return film["seconds"]["run"]


def film(engine: str, bench: Bench, frames: int, output: Path) -> float:
    options = [f"--encoder-options={name}={value}" for name, value in ENCODER_OPTIONS.items() if name != "crf"]
    options += ["--codec", ENCODER, "--crf", ENCODER_OPTIONS["crf"]]
    return network_seconds(run(*infer(bench, engine, "--input", bench.film(frames), "--output", output, *options)))


def pipe(bench: Bench, frames: int, output: Path) -> float:
    quiet = ["ffmpeg", "-y", "-loglevel", "error", "-i"]
    options = [word for name, value in ENCODER_OPTIONS.items() for word in (f"-{name}", value)]
    commands = [
        [*quiet, bench.film(frames), "-f", "yuv4mpegpipe", "-"],
        infer(bench, "engine", "--input", "-", "--output", "-"),
        [*quiet, "-", "-c:v", ENCODER, *options, output],
    ]
    line = " | ".join(shlex.join(map(str, command)) for command in commands)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stderr[-2000:]}")
    # A report goes to standard error where the frames go to standard output.
    return network_seconds(done.stderr)


def loop(way: str, bench: Bench, frames: int, output: Path) -> float:
    command = [sys.executable, __file__, "--way", way, "--graph", bench.file(f"{way}.onnx"), "--input",
               bench.film(frames), "--output", output]  # fmt: skip
    return json.loads(run(*command))["network"]


WAYS: dict[str, Callable[[Bench, int, Path], float]] = {
    OURS: partial(film, "engine"),
    "film-sized": partial(film, "sized"),
    "film-openvino": partial(film, "engine-openvino"),
    "pipe": pipe,
    "onnxruntime": partial(loop, "onnxruntime"),
    "openvino": partial(loop, "openvino"),
}


def network_of(way: str, graph: str) -> Callable[[numpy.ndarray], numpy.ndarray]:
    if way == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda image: session.run(None, {name: image})[0]
    import openvino

    properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().compile_model(graph, "CPU", properties)
    return lambda image: model([image])[0]


def work(way: str, graph: str, source: str, target: str) -> None:
    """What the process of a loop in Python does."""
    import av

    network = network_of(way, graph)
    seconds = 0.0
    with av.open(source) as opened, av.open(target, "w") as made:
        read = opened.streams.video[0]
        read.thread_type = "AUTO"
        written = None
        for frame in opened.decode(read):
            image = frame.to_ndarray(format="rgb24").transpose(2, 0, 1)[None].astype(numpy.float32) / 255
            begin = time.perf_counter()
            result = network(image)
            seconds += time.perf_counter() - begin
            levels = (result[0].clip(0, 1) * 255).round().astype(numpy.uint8).transpose(1, 2, 0)
            new = av.VideoFrame.from_ndarray(numpy.ascontiguousarray(levels), format="rgb24")
            new.pts, new.time_base = frame.pts, frame.time_base
            if written is None:
                written = made.add_stream(ENCODER, rate=read.average_rate, options=ENCODER_OPTIONS)
                written.width, written.height, written.pix_fmt = new.width, new.height, "yuv420p"
                # As the program ffmpeg does it; PyAV's default divides each frame into slices.
                written.thread_type = "FRAME"
            made.mux(written.encode(new))
        made.mux(written.encode())
    print(json.dumps({"network": seconds}))


def cpu_seconds() -> float:
    """The time of the processor of all programs that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def psnr(one: Path, other: Path) -> float:
    command = ["ffmpeg", "-i", one, "-i", other, "-lavfi", "psnr", "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(re.findall(r"average:(\S+)", done.stderr)[-1])


def compare(bench: Bench, rounds: int, ways: list[str]) -> list[str]:
    """The rows of the table."""
    prepare(bench)
    ways = [way for way in ways if way not in bench.missing]
    short, long = bench.part.frames
    whole: dict[str, list[float]] = {way: [] for way in ways}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    shares: dict[str, list[float]] = {way: [] for way in ways}
    busy: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in random.sample(ways, len(ways)):
            seconds, cpu = {}, {}
            for frames in (short, long):
                # The first round is the warm-up, for which the short film suffices.
                if number == 0 and frames == long and rounds > 0:
                    continue
                time.sleep(PAUSE)
                begin, before = time.perf_counter(), cpu_seconds()
                network = WAYS[way](bench, frames, bench.file(f"{way}-{frames}.mkv"))
                seconds[frames], cpu[frames] = time.perf_counter() - begin, cpu_seconds() - before
            if number > 0:
                whole[way].append(seconds[long])
                rates[way].append((long - short) / (seconds[long] - seconds[short]))
                shares[way].append(network / seconds[long])
                busy[way].append((cpu[long] - cpu[short]) / (long - short))
                times = [f"{frames} frames {seconds[frames]:.2f} s, CPU {cpu[frames]:.2f} s" for frames in cpu]
                load = os.getloadavg()[0]
                print(f"{way}: {', '.join(times)}, network {network:.2f} s, load {load:.1f}",
                      file=sys.stderr, flush=True)  # fmt: skip
    rows = []
    for way in ways:
        over = [mine / other for mine, other in zip(rates[OURS], rates[way])]
        faster = [other / mine for mine, other in zip(whole[OURS], whole[way])]
        like = "–"
        if way != OURS:
            decibels = psnr(bench.file(f"{OURS}-{long}.mkv"), bench.file(f"{way}-{long}.mkv"))
            if decibels < FLOOR_DB:
                raise AssertionError(f"the films of {OURS} and {way} differ: PSNR {decibels:.1f} dB")
            like = f"{decibels:.0f} dB"
        cells = [way, f"{statistics.median(rates[way]):.3f}", f"{statistics.median(over):.2f}",
                 f"{min(over):.2f}–{max(over):.2f}", f"{statistics.median(faster):.2f}",
                 f"{statistics.median(shares[way]):.0%}", f"{statistics.median(busy[way]):.2f} s", like]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds (default 3)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the ways; the first is `film`")
    parser.add_argument("--programs", type=Path, help="the folder of the programs, if not that of `make build`")
    parser.add_argument("--divide", type=int, default=1, help="sides of frames so many times shorter; 6: does it work?")
    for name in ("--way", "--graph", "--input", "--output"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.way:
        work(arguments.way, arguments.graph, arguments.input, arguments.output)
        return 0
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    programs = (arguments.programs or binaries()).resolve()
    ways = [OURS, *(way for way in arguments.ways if way != OURS)]
    for name in arguments.parts or PARTS:
        part = PARTS[name]
        width, height = (side // arguments.divide // 2 * 2 for side in (part.width, part.height))
        part = replace(part, width=width, height=height)
        begin, before = time.monotonic(), os.getloadavg()[0]
        # Beside the programs, because /tmp may be in memory.
        with tempfile.TemporaryDirectory(prefix="bench-films-", dir=programs.parent) as folder:
            bench = Bench(Path(folder), programs, part)
            rows = compare(bench, arguments.rounds, ways)
        print(f"{name}: {part.width}×{part.height} ×{part.scale}\n")
        print("| way | frames a second | film over it | its range | the same, whole | network | CPU | likeness |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(rows) + "\n", flush=True)
        for way, why in bench.missing.items():
            print(f"{name}: without {way}: {why}", file=sys.stderr)
        load = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        print(f"{name}: {load}, {time.monotonic() - begin:.0f} s in all", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
