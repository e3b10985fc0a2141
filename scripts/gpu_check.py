#!/usr/bin/env python3
"""Checks engines on a machine with an NVIDIA GPU: `make gpu-check` prints a report and keeps it in gpu-check/.

    1. `runtime doctor`: libraries, driver and GPU.
    2. For every architecture, a small network with random weights, in FP32 and FP16: builds an engine for this GPU. Its
       self-test expects what the CPU computed. It runs on CUDA and on TensorRT, strictly: it fails if a node runs
       elsewhere.
    3. compact-x4 in FP32 and FP16: the speed of every tile, batch and number of streams, relative to the first row.
    4. On an RTX GPU, for each plan of compact-x4: the measured time of a run over the least time by the GPU's rates
       (docs/plans.md). The plan with the highest ratio has the most to gain.

The engines of step 2 take most of the time, and need no GPU. Another machine can build them before:

    scripts/gpu_check.py --only-engines FOLDER --profile h200
    scripts/gpu_check.py --engines FOLDER            # on the machine with the GPU

Exit codes: 0 all checks passed, 1 a check failed, 3 ONNX Runtime can use no GPU on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench_models import gain_of
from commands import ROOT, binaries
from profiles import changed

WORK = ROOT / "gpu-check"
PRESET = "tiny"
PRECISIONS = ("fp32", "fp16")
# Random weights say nothing about quality, and the gates of large sizes take long and much memory on the CPU: what is
# checked is whether the GPU computes the same as the CPU.
SMALL = """
floors: { psnr_db: 20, cosine: 0.9 }
tasks:
  upscale: { tiles: [64x64, 256x256], batch: [1, 2] }
  vae_encoder: { tiles: [64x64], batch: 1 }
  vae_decoder: { tiles: [16x16], batch: 1 }
  unet: { tiles: [16x16], batch: 2 }
  realtime: { tiles: [64x96], batch: 1 }
"""
# No profile has the size of a clip.
CLIP = ("--size", "64x64", "--frames", "5")
OPTIONS = {"VideoAutoencoderKLEncoder": CLIP, "VideoAutoencoderKLDecoder": CLIP}
DOES_NOT_FIT = 3
RTX = "tensorrt-rtx"


class Programs:
    """The programs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / program), *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    def architectures(self) -> dict[str, str]:
        """Every registered architecture, with the shapes that its smallest network is exported with."""
        listed = self.run("xtask", "architectures", "--json")
        if listed.returncode:
            raise RuntimeError(f"xtask architectures: {listed.stderr.strip()}")
        shapes = {
            architecture["name"]: [preset["shapes"] for preset in architecture["presets"] if preset["name"] == PRESET]
            for architecture in json.loads(listed.stdout)
        }
        if without := [name for name, found in shapes.items() if not found]:
            raise RuntimeError(f"no preset `{PRESET}` of {', '.join(without)}")
        return {name: found[0] for name, found in shapes.items()}

    def write_graph(self, architecture: str, shapes: str, folder: Path) -> str | None:
        """Makes FOLDER/ARCHITECTURE.onnx with random weights. Returns the error, if there is one."""
        checkpoint, graph = folder / f"{architecture}.safetensors", folder / f"{architecture}.onnx"
        fixed = ["--shapes", shapes] if shapes else []
        for program, *arguments in (
            ("xtask", "synth", architecture, "--preset", PRESET, "--gain", gain_of(architecture), "-o", checkpoint),
            ("exporter", "export", checkpoint, "-o", graph, "--weights", "copy", *fixed),
        ):
            made = self.run(program, *arguments)
            if made.returncode:
                return made.stderr.strip()
        return None


def write_graphs(programs: Programs, folder: Path) -> int:
    """The part that needs no GPU: a graph of every architecture."""
    problems = [
        f"{architecture}: {problem}"
        for architecture, shapes in programs.architectures().items()
        if (problem := programs.write_graph(architecture, shapes, folder))
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def over_least(programs: Programs, engine: Path, provider: str) -> list[str]:
    """For each plan for one picture: the measured time of a run over its least time."""
    lines = []
    for graph in json.loads((engine / "manifest.json").read_text())["graphs"]:
        least = (graph.get("plan") or {}).get("figures", {}).get("least_microseconds")
        batch, _, height, width = next(iter(graph["inputs"].values()))
        if not least or batch != 1:
            continue
        size = f"{width}x{height}"
        setting = ["--tile", size, "--size", size, "--batch", "1", "--streams", "1", "--overlap", "0", "--margin", "0"]
        timed = programs.run("runtime", "bench", "--engine", engine, "--provider", provider, *setting, "--json")
        if timed.returncode:
            lines.append(f"{engine.name} {size}: not timed: {timed.stderr.strip()}")
            continue
        run = json.loads(timed.stdout)["stages"]["run_ms"]
        ratio = run / (least / 1e3)
        lines.append(f"{engine.name} {size} on {provider}: {run:.2f} ms, {ratio:.1f} times the least time")
    return lines


def build_engines(programs: Programs, profile: str, folder: Path, jobs: int) -> Iterator[str]:
    """Makes FOLDER/ARCHITECTURE-PRECISION of every architecture, and says what failed."""
    small = changed(profile, SMALL, folder)

    def build(architecture: str, shapes: str) -> list[str]:
        if problem := programs.write_graph(architecture, shapes, folder):
            return [f"{architecture}: {problem}"]
        problems = []
        for precision in PRECISIONS:
            graph, engine = folder / f"{architecture}.onnx", folder / f"{architecture}-{precision}"
            options = ["--profile", small, "--precision", precision, *OPTIONS.get(architecture, ()), "-o", engine]
            built = programs.run("engine-builder", "build", graph, *options)
            if built.returncode:
                problems.append(f"{architecture} {precision}: not built: {built.stderr.strip()}")
        return problems

    with ThreadPoolExecutor(jobs) as pool:
        for problems in pool.map(build, *zip(*programs.architectures().items())):
            yield from problems


def verify_engines(programs: Programs, folder: Path, providers: list[str], jobs: int) -> Iterator[tuple[bool, str]]:
    """For each engine in the folder and provider: whether it runs there and agrees with the CPU, and what it said."""

    def verify(engine: Path, provider: str) -> tuple[bool, str]:
        verified = programs.run("runtime", "verify", "--engine", engine, "--provider", provider, "--strict")
        agrees = verified.returncode == 0
        said = (verified.stdout if agrees else verified.stderr).strip().splitlines()[-1 if agrees else 0 :]
        return agrees, f"{engine.name} on {provider}: {' '.join(said) or verified.returncode}"

    engines = sorted(manifest.parent for manifest in folder.glob("*/manifest.json"))
    wanted = [(engine, provider) for provider in providers for engine in engines]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda each: verify(*each), wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove on the NVIDIA GPU of this machine what no other machine can.")
    parser.add_argument(
        "--binaries", type=Path, help="the folder of the programs (default: Cargo's, of release builds)"
    )
    parser.add_argument(
        "--only-graphs", type=Path, metavar="FOLDER", help="only write every architecture's graph: needs no GPU"
    )
    parser.add_argument(
        "--only-engines", type=Path, metavar="FOLDER", help="only build every architecture's engines: needs no GPU"
    )
    parser.add_argument("--profile", help="with --only-engines: the profile of the GPU")
    parser.add_argument("--engines", type=Path, metavar="FOLDER", help="check these engines, and build none")
    parser.add_argument(
        "--jobs", type=int, default=min(8, os.cpu_count() or 1), help="engines at the same time (default %(default)s)"
    )
    options = parser.parse_args()
    if bool(options.only_engines) != bool(options.profile):
        parser.error("--only-engines and --profile go together")
    programs = Programs(options.binaries or binaries())
    if options.only_graphs:
        return write_graphs(programs, options.only_graphs)
    if options.only_engines:
        options.only_engines.mkdir(parents=True, exist_ok=True)
        problems = list(build_engines(programs, options.profile, options.only_engines, options.jobs))
        for problem in problems:
            print(problem, file=sys.stderr)
        return 1 if problems else 0
    return check(programs, options.engines, options.jobs)


def check(programs: Programs, prepared: Path | None, jobs: int) -> int:
    run = programs.run
    WORK.mkdir(exist_ok=True)
    report: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        report.append(line)

    doctor = json.loads(run("runtime", "doctor", "--json").stdout)
    status = {each["provider"]: each for each in doctor["providers"]}
    if not status["cuda"]["usable"]:
        print(
            f"gpu-check: not run: {status['cuda']['reason']}; set the GPU library up with `make setup GPU=1`",
            file=sys.stderr,
        )
        return DOES_NOT_FIT
    say(run("runtime", "doctor").stdout.strip())
    providers = [name for name in ("cuda", "tensorrt", RTX) if status[name]["usable"]]
    for left_out in {"tensorrt", RTX} - set(providers):
        say(f"{left_out} is left out: {status[left_out]['reason']}")
    here = run("engine-builder", "profiles", "--here")
    profile = here.stdout.strip()
    if profile == "cpu":
        print(f"gpu-check: not run: no profile is for this GPU: {here.stderr.strip()}", file=sys.stderr)
        return DOES_NOT_FIT

    failures = 0
    folder = prepared or WORK / "engines"
    if not prepared:
        folder.mkdir(exist_ok=True)
        for problem in build_engines(programs, profile, folder, jobs):
            failures += 1
            say(problem)
    for agrees, said in verify_engines(programs, folder, providers, jobs):
        failures += not agrees
        say(said)

    engines = []
    for precision in PRECISIONS:
        engine = WORK / f"compact-x4-{precision}"
        built = run(
            "engine-builder",
            "build",
            "models/compact-x4.yaml",
            "--profile",
            profile,
            "--precision",
            precision,
            "-o",
            engine,
        )
        if built.returncode:
            failures += 1
            say(f"compact-x4 {precision}: not built: {built.stderr.strip()}")
        else:
            engines.append(engine)
    for provider in providers if engines else []:
        options = ["--provider", provider, "--sweep", "--size", "2048x2048", "--report", WORK / f"sweep-{provider}"]
        swept = run("runtime", "bench", "--engine", *engines, *options)
        failures += swept.returncode != 0
        say((swept.stdout or swept.stderr).strip())
    if RTX in providers:
        for engine in engines:
            for line in over_least(programs, engine, RTX):
                say(line)
    say(f"{failures} failures" if failures else "everything holds")
    (WORK / "report.txt").write_text("\n".join(report) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
