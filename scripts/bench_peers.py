#!/usr/bin/env python3
"""Compares depth, real-time frames and an autoencoder with their references, from file to file on the CPU, in one run.

    python3 -m venv target/peers && target/peers/bin/pip install -r tests/golden-systems/requirements.txt \\
        -r tests/golden-depth/requirements.txt diffusers onnx onnxscript onnxruntime==1.31.1
    make build && target/peers/bin/python scripts/bench_peers.py REPOSITORIES [--runs 7] [--small] [PART ...]

REPOSITORIES has the references' repositories (tests/golden-systems/generate.py). All weights are random.

| part | computes | peers |
|---|---|---|
| depth | RGBDDepth `vits`: a picture of 640×480 and a sensor's map to a 16-bit PNG | the reference's script, PyTorch |
| frames | SimpleOptimizedUNet `base-96`: a stream of frames of 64×64 | a loop in PyTorch |
| pair | GPUStressTestModel `base-192` (880 M parameters): the same, with the previous output fed back | the same |
| decoder | SDXL's decoder: latents of 64×64 to a PNG | diffusers; ONNX Runtime with `torch.onnx.export`'s graph |

Every run of every way is a new process, and the ways take turns. "Computation" is the time from the input's file to the
output's file within that process, when the network is loaded; peers that are compiled compute twice, and the second
time counts. "Process" is the time from its start to its end. It is new because memory that a process touches for the
first time can cost as much as the computation on a virtual machine, so a process that waits in between with all of its
memory is no fair peer of one that has just started. All must give the same result. `--small` runs everything at small
sizes, to see whether it works.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy
from commands import ROOT, binaries, run, xtask
from turns import ratios, take_turns

OURS = "ours"
COMPILED = ", compiled"
GIGABYTE = 1e9


@dataclass(frozen=True)
class Setting:
    """Where a comparison works, and how large it is."""

    folder: Path
    repositories: Path
    small: bool

    def file(self, name: str) -> Path:
        return self.folder / name

    def add_repositories(self) -> None:
        for place in ("rgbd-depth", "mirage-hello/examples/basic", "mirage-hello/examples/advanced"):
            sys.path.insert(0, str(self.repositories / place))


def synthesise(setting: Setting, architecture: str, preset: str) -> Path:
    checkpoint = setting.file("checkpoint.safetensors")
    xtask("synth", architecture, "--preset", preset, "-o", checkpoint)
    return checkpoint


def build_engine(setting: Setting, size: str) -> None:
    run(binaries() / "engine-builder", "build", setting.file("checkpoint.safetensors"), "--profile", "cpu", "--size",
        size, "-o", setting.file("engine"))  # fmt: skip


def load(network, setting: Setting, is_unused: Callable[[str], bool] = lambda name: False):
    """A network of PyTorch with the weights of the checkpoint."""
    import safetensors.torch

    state = safetensors.torch.load_file(setting.file("checkpoint.safetensors"))
    missing, unexpected = network.load_state_dict(state, strict=False)
    if wrong := unexpected + [name for name in missing if not is_unused(name)]:
        raise AssertionError(f"the reference has other tensors: {wrong[:3]}")
    return network.float().eval()


class Depth:
    peers = ("the reference's script", "the reference's script" + COMPILED)

    @staticmethod
    def input_size(setting: Setting) -> int:
        return 56 if setting.small else 518

    @classmethod
    def prepare(cls, setting: Setting) -> None:
        from PIL import Image

        width, height = (96, 72) if setting.small else (640, 480)
        synthesise(setting, "RGBDDepth", "vits")
        build_engine(setting, "70x56" if setting.small else "686x518")
        photo = Image.open(ROOT / "tests/images/coffee.png").convert("RGB")
        photo.resize((width, height)).save(setting.file("picture.png"))
        random = numpy.random.default_rng(0)
        rows, columns = numpy.mgrid[:height, :width]
        millimetres = 700 + 3 * rows + 1300 * ((columns // 57) % 3)
        millimetres[random.random((height, width)) < 0.2] = 0
        Image.fromarray(millimetres.astype(numpy.uint16)).save(setting.file("map.png"))

    @staticmethod
    def command(setting: Setting, output: Path) -> list:
        return ["infer", "--input", setting.file("picture.png"), "--depth", setting.file("map.png"), "--output", output]

    @staticmethod
    def computation(report: dict) -> float:
        [file] = report["files"]
        return file["open_seconds"] + file["run_seconds"] + file["write_seconds"]

    @classmethod
    def peer(cls, way: str, setting: Setting) -> Callable[[Path], None]:
        setting.add_repositories()
        import cv2
        import infer
        import torch

        # The fusion of a level without a predecessor, and embeddings of masked patches.
        unused = ("mask_token", "refinenet4.resConfUnit1.")
        network = load(
            infer.RGBDDepth(**infer.model_configs["vits"]), setting, lambda name: any(part in name for part in unused)
        )
        if way.endswith(COMPILED):
            network.forward = torch.compile(network.forward)

        def compute(output: Path) -> None:
            picture, _, inverse = infer.load_images(
                str(setting.file("picture.png")), str(setting.file("map.png")), 1000.0, 25.0
            )
            predicted = network.infer_image(picture, inverse, input_size=cls.input_size(setting))
            with numpy.errstate(divide="ignore"):
                depth = 1 / predicted
            depth[~numpy.isfinite(depth)] = 0
            cv2.imwrite(str(output), (depth * 1000).round().clip(0, 65535).astype(numpy.uint16))

        return compute

    @staticmethod
    def difference(ours: Path, theirs: Path) -> str | None:
        import cv2

        one, other = (cv2.imread(str(path), cv2.IMREAD_UNCHANGED).astype(numpy.int64) for path in (ours, theirs))
        valid = (other > 0) & (other < 65535)
        share = float((abs(one - other)[valid] <= 1).mean())
        return None if share >= 0.99 else f"only {100 * share:.1f} % of the pixels are within a millimetre"


class Frames:
    peers = ("a loop in PyTorch", "a loop in PyTorch" + COMPILED)
    architecture, preset, low = "SimpleOptimizedUNet", "base-96", -1.0
    count, side, timestep = 100, 64, 50.0

    @classmethod
    def counted(cls, setting: Setting) -> int:
        return 4 if setting.small else cls.count

    @classmethod
    def prepare(cls, setting: Setting) -> None:
        synthesise(setting, cls.architecture, "tiny" if setting.small else cls.preset)
        build_engine(setting, f"{cls.side}x{cls.side}")
        count = cls.counted(setting)
        frame, row, column, channel = numpy.ogrid[:count, : cls.side, : cls.side, :3]
        pattern = 128 + 60 * numpy.sin((column + 3 * frame) / 7) + 50 * numpy.cos((row - 2 * frame) / (5 + channel))
        setting.file("frames.rgb").write_bytes(pattern.clip(0, 255).astype(numpy.uint8).tobytes())

    @classmethod
    def command(cls, setting: Setting, output: Path) -> list:
        return ["infer", "--input", setting.file("frames.rgb"), "--raw", f"rgb24:{cls.side}x{cls.side}", "--output",
                output, "--timestep", str(cls.timestep)]  # fmt: skip

    @staticmethod
    def computation(report: dict) -> float:
        return report["frames"] / report["frames_per_second"]

    @classmethod
    def network(cls, setting: Setting):
        """A network of the frame, the timestep and the previous output."""
        import torch
        from day2_fixed import SimpleOptimizedUNet

        base = 16 if setting.small else 96
        network = load(SimpleOptimizedUNet(in_channels=4, out_channels=3, base_channels=base), setting, is_counter)

        def forward(frame, previous):
            return network(torch.cat([frame, torch.full_like(frame[:, :1], cls.timestep / 100)], 1))

        return forward

    @classmethod
    def peer(cls, way: str, setting: Setting) -> Callable[[Path], None]:
        setting.add_repositories()
        import torch

        network = cls.network(setting)
        if way.endswith(COMPILED):
            network = torch.compile(network)
        length = 3 * cls.side * cls.side

        def compute(output: Path) -> None:
            previous = torch.zeros(1, 3, cls.side, cls.side)
            with setting.file("frames.rgb").open("rb") as read, output.open("wb") as written, torch.inference_mode():
                while frame := read.read(length):
                    levels = torch.frombuffer(bytearray(frame), dtype=torch.uint8).view(1, cls.side, cls.side, 3)
                    values = levels.permute(0, 3, 1, 2).float() / 255 * (1 - cls.low) + cls.low
                    previous = network(values.contiguous(), previous)
                    made = ((previous - cls.low) / (1 - cls.low) * 255).round().clamp(0, 255).to(torch.uint8)
                    written.write(made.permute(0, 2, 3, 1).contiguous().numpy().tobytes())

        return compute

    @staticmethod
    def difference(ours: Path, theirs: Path) -> str | None:
        one, other = (numpy.frombuffer(path.read_bytes(), numpy.uint8).astype(int) for path in (ours, theirs))
        return levels_apart(one, other)


class Pair(Frames):
    architecture, preset, low, count = "GPUStressTestModel", "base-192", 0.0, 10

    @classmethod
    def network(cls, setting: Setting):
        from gpu_stress_test import GPUStressTestModel

        base = 16 if setting.small else 192
        network = load(
            GPUStressTestModel(channels=3, base_channels=base, num_timesteps=100), setting, is_counter
        )
        return lambda frame, previous: network(frame, cls.timestep, previous)


class Decoder:
    peers = ("diffusers", "diffusers" + COMPILED, "ONNX Runtime, torch.onnx.export")
    scaling = 0.13025

    @staticmethod
    def side(setting: Setting) -> int:
        return 8 if setting.small else 64

    @classmethod
    def prepare(cls, setting: Setting) -> None:
        import safetensors.numpy

        synthesise(setting, "AutoencoderKLDecoder", "sdxl")
        build_engine(setting, f"{8 * cls.side(setting)}x{8 * cls.side(setting)}")
        shape = (1, 4, cls.side(setting), cls.side(setting))
        latent = (numpy.random.default_rng(0).standard_normal(shape) * cls.scaling).astype(numpy.float32)
        safetensors.numpy.save_file({"latent": latent}, setting.file("latent.safetensors"))

    @staticmethod
    def command(setting: Setting, output: Path) -> list:
        return ["decode", "--input", setting.file("latent.safetensors"), "--output", output]

    @staticmethod
    def computation(report: dict) -> float:
        return report["seconds"]

    @classmethod
    def peer(cls, way: str, setting: Setting) -> Callable[[Path], None]:
        import safetensors.torch
        import torch
        from diffusers import AutoencoderKL
        from PIL import Image

        levels = 4
        network = AutoencoderKL(
            block_out_channels=[128, 256, 512, 512],
            layers_per_block=2,
            down_block_types=["DownEncoderBlock2D"] * levels,
            up_block_types=["UpDecoderBlock2D"] * levels,
            latent_channels=4,
            scaling_factor=cls.scaling,
        )
        network = load(network, setting, lambda name: name.startswith(("encoder.", "quant_conv.")))

        class Graph(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, latent: torch.Tensor) -> torch.Tensor:
                return self.network.decode(latent, return_dict=False)[0]

        if "ONNX" in way:
            import onnxruntime

            shape, path = (1, 4, cls.side(setting), cls.side(setting)), setting.file("traced.onnx")
            # By the process of the first round, which does not count.
            if not path.exists():
                with torch.no_grad():
                    torch.onnx.export(Graph().eval(), (torch.zeros(shape),), str(path), dynamo=True, verbose=False)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            name = session.get_inputs()[0].name
            decode = lambda latent: torch.from_numpy(session.run(None, {name: latent.numpy()})[0])  # noqa: E731
        else:
            graph = Graph().eval()
            decode = torch.compile(graph) if way.endswith(COMPILED) else graph

        def compute(output: Path) -> None:
            latent = safetensors.torch.load_file(setting.file("latent.safetensors"))["latent"] / cls.scaling
            with torch.inference_mode():
                made = ((decode(latent) / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8)[0]
            Image.fromarray(made.permute(1, 2, 0).contiguous().numpy()).save(output)

        return compute

    @staticmethod
    def difference(ours: Path, theirs: Path) -> str | None:
        from PIL import Image

        return levels_apart(*(numpy.asarray(Image.open(path)).astype(int) for path in (ours, theirs)))


PARTS = {"depth": Depth, "frames": Frames, "pair": Pair, "decoder": Decoder}
# The ending of what a part writes.
ENDINGS = {"depth": "png", "frames": "rgb", "pair": "rgb", "decoder": "png"}


def is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


def levels_apart(one: numpy.ndarray, other: numpy.ndarray) -> str | None:
    if one.shape != other.shape:
        return f"the shapes are {one.shape} and {other.shape}"
    worst = int(abs(one - other).max())
    return None if worst <= 1 else f"samples are up to {worst} levels of 255 apart"


def peak_bytes() -> int:
    """The most memory that this process had at once."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def run_peer(part: str, way: str, setting: Setting, output: Path) -> dict:
    """Computes once in a process of its own, and gives what it reports."""
    arguments = [setting.repositories, part, "--way", way, "--folder", setting.folder, "--output", output]
    return json.loads(run(sys.executable, __file__, *arguments, *["--small"] * setting.small))


def work(part: str, way: str, setting: Setting, output: Path) -> None:
    """What the process of a peer does."""
    answer = os.fdopen(os.dup(1), "w")
    # Whatever the references print is no answer.
    os.dup2(2, 1)
    compute = PARTS[part].peer(way, setting)
    if way.endswith(COMPILED):
        compute(output)
    begin = time.perf_counter()
    compute(output)
    print(json.dumps({"seconds": time.perf_counter() - begin, "peak_bytes": peak_bytes()}), file=answer, flush=True)


def compare(part: str, runs: int, setting: Setting) -> list[str]:
    """The rows of the table."""
    made, kind = PARTS[part], ENDINGS[part]
    made.prepare(setting)
    computations: dict[str, list[float]] = {way: [] for way in (OURS, *made.peers)}
    peaks = dict.fromkeys(computations, 0)

    def report(way: str, seconds: float, peak: int) -> None:
        computations[way].append(seconds)
        peaks[way] = max(peaks[way], peak)

    def ours() -> Path:
        output = setting.file(f"ours.{kind}")
        command = made.command(setting, output)
        found = json.loads(run(binaries() / "runtime", *command, "--engine", setting.file("engine"), "--json"))
        report(OURS, made.computation(found), found["peak_memory_bytes"])
        return output

    def theirs(number: int, way: str) -> Path:
        output = setting.file(f"peer-{number}.{kind}")
        found = run_peer(part, way, setting, output)
        report(way, found["seconds"], found["peak_bytes"])
        return output

    ways = {OURS: ours} | {way: partial(theirs, number, way) for number, way in enumerate(made.peers)}
    outputs, processes = take_turns(ways, runs)
    for way in made.peers:
        if difference := made.difference(outputs[OURS], outputs[way]):
            raise AssertionError(f"{part}: ours and {way}: {difference}")
    # The first round was the warm-up.
    computations = {way: seconds[1:] for way, seconds in computations.items()}
    columns = [(times, ratios(times, OURS)) for times in (computations, processes)]
    rows = []
    for way, peak in peaks.items():
        cells = [part, way]
        for times, over in columns:
            cells += [f"{statistics.median(times[way]):.3f} s", f"{1 / over[way]:.2f}" if way != OURS else "1"]
        rows.append(f"| {' | '.join([*cells, f'{peak / GIGABYTE:.2f} GB'])} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repositories", type=Path, help="the folder with the references' repositories")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all but pair")
    parser.add_argument("--runs", type=int, default=7, help="timed rounds of each comparison (default 7)")
    parser.add_argument("--small", action="store_true", help="small sizes, to see whether it works")
    for name in ("--way", "--folder", "--output"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    repositories = arguments.repositories.resolve()
    if arguments.way:
        setting = Setting(Path(arguments.folder), repositories, arguments.small)
        work(arguments.parts[0], arguments.way, setting, Path(arguments.output))
        return 0
    print("| part | way | computation | ours is faster by | process | ours is faster by | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for part in arguments.parts or [name for name in PARTS if name != "pair"]:
        before = os.getloadavg()[0]
        begin = time.monotonic()
        # Beside the programs, because /tmp may be in memory.
        with tempfile.TemporaryDirectory(prefix="bench-peers-", dir=binaries().parent) as folder:
            print("\n".join(compare(part, arguments.runs, Setting(Path(folder), repositories, arguments.small))))
        load_text = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        print(f"{part}: {load_text}, {time.monotonic() - begin:.0f} s in all", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
