#!/usr/bin/env python3
"""Proves on a machine with an NVIDIA GPU what no other machine can: `make gpu-check` prints one report and keeps it in gpu-check/.

    1. `runtime doctor`: what is there.
    2. For a small network of random weights of every architecture, in FP32 and FP16: an engine for this GPU is built, and its self-test, of
       which the CPU has computed what is expected, runs on CUDA and on TensorRT, strictly: every node there, or it fails.
    3. compact-x4 in FP32 and FP16: every tile, batch and number of streams, against the first row.

Exit codes: 0 all of it holds, 1 something does not, 3 there is no GPU that ONNX Runtime can use here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / "target" / "release"
WORK = ROOT / "gpu-check"
DOES_NOT_FIT = 3


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / program), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def architectures() -> list[str]:
    """Every registered architecture: those that the tool names when it is asked for one that it does not know."""
    return re.findall(r"\w+", run("xtask", "synth", "?", "-o", WORK / "none").stderr.split("known are", 1)[-1])


def main() -> int:
    WORK.mkdir(exist_ok=True)
    report: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        report.append(line)

    doctor = json.loads(run("runtime", "doctor", "--json").stdout)
    status = {each["provider"]: each for each in doctor["providers"]}
    if not status["cuda"]["usable"]:
        print(f"gpu-check: not run: {status['cuda']['reason']}; set the GPU library up with `make setup GPU=1`", file=sys.stderr)
        return DOES_NOT_FIT
    say(run("runtime", "doctor").stdout.strip())
    providers = [name for name in ("cuda", "tensorrt") if status[name]["usable"]]
    if "tensorrt" not in providers:
        say(f"TensorRT is left out: {status['tensorrt']['reason']}")
    here = run("engine-builder", "profiles", "--here")
    profile = here.stdout.strip()
    if profile == "cpu":
        print(f"gpu-check: not run: no profile is for this GPU: {here.stderr.strip()}", file=sys.stderr)
        return DOES_NOT_FIT

    # Random weights say nothing of quality: what is asked here is whether this GPU computes what the CPU does.
    without_quality = WORK / f"{profile}.yaml"
    floors = "floors: { psnr_db: 20, cosine: 0.9 }\n"
    without_quality.write_text((ROOT / "profiles" / f"{profile}.yaml").read_text() + floors)
    if not (families := WORK / "families").exists():
        families.symlink_to(ROOT / "profiles" / "families")
    failures = 0
    for architecture in architectures():
        checkpoint, graph = WORK / f"{architecture}.safetensors", WORK / f"{architecture}.onnx"
        for program, arguments in (
            ("xtask", ["synth", architecture, "-o", checkpoint]),
            ("exporter", ["export", checkpoint, "-o", graph, "--weights", "copy"]),
        ):
            made = run(program, *arguments)
            if made.returncode:
                break
        if made.returncode:
            failures += 1
            say(f"{architecture}: {made.stderr.strip()}")
            continue
        for precision in ("fp32", "fp16"):
            engine = WORK / "engines" / f"{architecture}-{precision}"
            built = run("engine-builder", "build", graph, "--profile", without_quality, "--precision", precision, "-o", engine)
            if built.returncode:
                failures += 1
                say(f"{architecture} {precision}: not built: {built.stderr.strip()}")
                continue
            for provider in providers:
                verified = run("runtime", "verify", "--engine", engine, "--provider", provider, "--strict")
                failures += verified.returncode != 0
                said = (verified.stdout + verified.stderr).strip().splitlines()
                say(f"{architecture} {precision} on {provider}: {said[-1] if said else verified.returncode}")

    engines = []
    for precision in ("fp32", "fp16"):
        engine = WORK / "engines" / f"compact-x4-{precision}"
        built = run("engine-builder", "build", "models/compact-x4.yaml", "--profile", profile, "--precision", precision, "-o", engine)
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
    say(f"{failures} failures" if failures else "everything holds")
    (WORK / "report.txt").write_text("\n".join(report) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
