#!/usr/bin/env python3
"""Compares the engine-builder's FP16 and INT8 graphs with those of other converters, on the CPU.

    python3 -m venv target/precision-venv
    target/precision-venv/bin/pip install onnxruntime==1.31.1 onnx onnxconverter-common nvidia-modelopt[onnx] \\
        safetensors scikit-image
    make build && target/precision-venv/bin/python scripts/bench_precision.py [--runs 9] [--threads 1] [MODEL ...]

Every converter gets the same exported graph and the same calibration tiles. Its graph is compared with the FP32 engine
on a photo that was not used for calibration; for the trained model, also with the photo before it was shrunk. All
graphs take turns within one run, after one warm-up run each. Speed is the median of the ratios to the FP32 engine.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
import onnxruntime
import safetensors.numpy
import skimage.data
from commands import ROOT, binaries, run, xtask
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image
from profiles import with_shapes
from turns import ratios, take_turns

CALIBRATION = ("astronaut", "chelsea", "cat", "rocket")  # coffee is the measured photo


@dataclass(frozen=True)
class Model:
    """A model file, or an architecture and preset of `cargo xtask synth`; and the tile's size."""

    source: str | tuple[str, str]
    tile: int
    calibration_tiles: int = 16


@dataclass(frozen=True)
class Tensors:
    """A network that takes tensors: an architecture and preset of `cargo xtask synth`, and its input shapes."""

    architecture: str
    preset: str
    shapes: str
    # A convolution whose output leaves FP16's range, as in SDXL's decoder. The normalisation after it brings it back.
    planted: str | None = None


MODELS = {
    "compact": Model("models/compact-x4.yaml", 256),
    "rrdbnet": Model(("RRDBNet", "real-esrgan-x4plus"), 64),
    # A tile of this network takes seconds, and the other tools' converters run it many times.
    "drct": Model(("DRCT", "drct-x4"), 64, calibration_tiles=4),
    "swinir-m": Model(("SwinIR", "swinir-m-x4"), 64, calibration_tiles=4),
    "vae-decoder": Tensors(
        "AutoencoderKLDecoder", "sdxl", "latent_sample:1x4x16x16", "decoder.up_blocks.2.resnets.0.conv1"
    ),
    "unet": Tensors("UNet2DConditionModel", "sd15", "sample:1x4x16x16,timestep:1,encoder_hidden_states:1x77x768"),
    "realtime-unet": Tensors("SimpleOptimizedUNet", "base-96", "frame:1x3x64x64"),
}


def planes(picture: numpy.ndarray) -> numpy.ndarray:
    return (picture[..., :3].astype(numpy.float32) / 255).transpose(2, 0, 1)[None]


class Tiles(CalibrationDataReader):
    """Tiles from random places of the calibration photos."""

    def __init__(self, name: str, size: int, count: int):
        random = numpy.random.default_rng(0)
        self.tiles = []
        for number in range(count):
            photo = getattr(skimage.data, CALIBRATION[number % len(CALIBRATION)])()
            x, y = (int(random.integers(photo.shape[axis] - size + 1)) for axis in (1, 0))
            self.tiles.append({name: planes(photo[y : y + size, x : x + size])})
        self.rewind()

    def rewind(self) -> None:
        self.left = iter(self.tiles)

    def get_next(self) -> dict | None:
        return next(self.left, None)


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def decibels(found: numpy.ndarray, expected: numpy.ndarray, peak: float) -> float:
    error = float(numpy.mean((found.astype(numpy.float64) - expected) ** 2))
    return 200.0 if error == 0 else float(10 * numpy.log10(peak**2 / error))


def without_gates(name: str, tile: int = 64) -> str:
    """A profile of CPUs for tiles of one side, whose gates measure but refuse nothing: the figures are the result."""
    text = with_shapes(name, f"{{ tiles: [{tile}x{tile}] }}")
    return text.replace("psnr_db: 100", "psnr_db: 0").replace("cosine: 0.999999", "cosine: 0\n  speed: 0")


def measure(name: str, model: Model, runs: int, threads: int, folder: Path) -> dict:
    if isinstance(model.source, tuple):
        source = folder / f"{name}.safetensors"
        xtask("synth", model.source[0], "--preset", model.source[1], "-o", source)
    else:
        source = ROOT / model.source
    checkpoint = source.with_suffix(".safetensors")
    graph = folder / f"{name}.onnx"
    run(
        binaries() / "exporter",
        "export",
        checkpoint,
        "-o",
        graph,
        "--shapes",
        f"image:1x3x{model.tile}x{model.tile}",
        "--weights",
        "inline",
    )
    profile = folder / "bench.yaml"
    profile.write_text(without_gates("bench", model.tile))
    tiles = Tiles("image", model.tile, model.calibration_tiles)
    photos = folder / "photos"
    photos.mkdir(exist_ok=True)
    for number, tile in enumerate(tiles.tiles):
        picture = (tile["image"][0].transpose(1, 2, 0) * 255).round().astype(numpy.uint8)
        Image.fromarray(picture).save(photos / f"{number:02}.png")

    def engine(precision: str, *more: str) -> Path:
        built = folder / f"{name}-{precision}{''.join(more)}"
        measured = (
            ()
            if precision == "fp32"
            else ("--calibration", photos, "--calibration-tiles", str(model.calibration_tiles))
        )
        options = (*measured, "--json", *more)
        run(
            binaries() / "engine-builder",
            "build",
            source,
            "--profile",
            profile,
            "--precision",
            precision,
            *options,
            "-o",
            built,
        )
        return next(built.glob("*.onnx"))

    def quantised_by_onnxruntime() -> Path:
        prepared, made = folder / f"{name}-prepared.onnx", folder / f"{name}-static.onnx"
        quant_pre_process(str(graph), str(prepared), skip_symbolic_shape=True)
        tiles.rewind()
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        method = CalibrationMethod.MinMax
        quantize_static(
            str(prepared), str(made), tiles, QuantFormat.QDQ, per_channel=True, calibrate_method=method, **types
        )
        return made

    def quantised_by_modelopt() -> Path:
        from modelopt.onnx.quantization import quantize

        made = folder / f"{name}-modelopt.onnx"
        data = {"image": numpy.concatenate([tile["image"] for tile in tiles.tiles])}
        quantize(
            str(graph),
            "int8",
            calibration_data=data,
            calibration_eps=["cpu"],
            output_path=str(made),
            high_precision_dtype="fp32",
        )
        return made

    def halved_by_onnxconverter() -> Path:
        from onnxconverter_common import float16

        made = folder / f"{name}-converter.onnx"
        onnx.save(float16.convert_float_to_float16(onnx.load(graph), keep_io_types=True), made)
        return made

    ways: dict[str, Callable[[], Path]] = {
        "FP32": lambda: engine("fp32"),
        "FP32, exported graph": lambda: graph,
        "FP16": lambda: engine("fp16"),
        "FP16, onnxconverter-common": halved_by_onnxconverter,
        "INT8": lambda: engine("int8"),
        "INT8, all layers": lambda: engine("int8", "--all-layers"),
        "INT8, quantize_static": quantised_by_onnxruntime,
        "INT8, modelopt": quantised_by_modelopt,
    }
    sessions, failures = {}, {}
    for way, make in ways.items():
        try:
            sessions[way] = session(make(), threads)
        except Exception as error:  # that a tool fails is a result, too
            if way == "FP32":
                raise
            failures[way] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:300] if str(error) else ''}"
    coffee = skimage.data.coffee()
    trained = not isinstance(model.source, tuple)
    side = model.tile
    if trained:
        # The largest square that shrinks to at most the tile, padded by its mirror image. Only the inside is compared.
        truth = coffee[: coffee.shape[0] // 4 * 4, : coffee.shape[1] // 4 * 4]
        small = numpy.asarray(
            Image.fromarray(truth).resize((truth.shape[1] // 4, truth.shape[0] // 4), Image.Resampling.BICUBIC)
        )
        pad = [(0, side - small.shape[0]), (0, side - small.shape[1]), (0, 0)]
        image = planes(numpy.pad(small, pad, mode="reflect"))
    else:
        image = planes(coffee[100 : 100 + side, 200 : 200 + side])
    runners = {
        way: functools.partial(lambda made: made.run(None, {"image": image})[0], made) for way, made in sessions.items()
    }
    outputs, times = take_turns(runners, runs)
    speed = {"FP32": 1.0} | ratios(times, "FP32")
    reference = outputs["FP32"]
    peak = float(reference.max() - reference.min())
    result = {}
    for way in sessions:
        row = {
            "speed over FP32": round(speed[way], 2),
            "PSNR to FP32": round(decibels(outputs[way], reference, peak), 1),
        }
        if trained:
            inside = outputs[way][0, :, : truth.shape[0], : truth.shape[1]].clip(0, 1)
            row["PSNR to the photo"] = round(decibels(inside, planes(truth)[0], 1.0), 2)
        result[way] = row
    return result | {way: {"failed": why} for way, why in failures.items()}


def measure_tensors(name: str, model: Tensors, runs: int, threads: int, folder: Path) -> dict:
    """Engines of a network that takes tensors, on the inputs of their self-test."""
    checkpoint, graph, profile = (folder / f"{name}.{kind}" for kind in ("safetensors", "onnx", "yaml"))
    xtask("synth", model.architecture, "--preset", model.preset, "-o", checkpoint)
    weights = "inline" if model.planted else "link"
    run(binaries() / "exporter", "export", checkpoint, "-o", graph, "--shapes", model.shapes, "--weights", weights)
    if model.planted:
        loaded = onnx.load(graph)
        weight = next(weight for weight in loaded.graph.initializer if weight.name == f"{model.planted}.weight")
        weight.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * numpy.float32(1e6), weight.name)
        )
        onnx.save(loaded, graph)
    text = without_gates(name)
    result, sessions = {}, {}
    for way in ("FP32", "FP16", "INT8"):
        profile.write_text(text.replace("precision: fp32", f"precision: {way.lower()}"))
        engine = folder / f"{name}-{way}"
        options = ("--calibration-tiles", "8", "--json", "-o", engine)
        manifest = json.loads(run(binaries() / "engine-builder", "build", graph, "--profile", profile, *options))
        gates = {gate["name"]: gate["value"] for gate in manifest["gates"]}
        islands = manifest.get("islands", [])
        result[way] = {
            "PSNR to FP32": round(gates["psnr_db"], 1),
            "cosine": round(gates["cosine"], 6),
            "islands": islands,
        }
        sessions[way] = session(next(engine.glob("*.onnx")), threads)
    inputs = safetensors.numpy.load_file(engine / "selftest.safetensors")
    inputs = {port.name: inputs[f"input.{port.name}"] for port in sessions["FP32"].get_inputs()}
    _, times = take_turns({way: functools.partial(made.run, None, inputs) for way, made in sessions.items()}, runs)
    for way, speed in ({"FP32": 1.0} | ratios(times, "FP32")).items():
        result[way]["speed over FP32"] = round(speed, 2)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare FP16 and INT8 graphs with other converters' on the CPU.")
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all of them if none is named"
    )
    parser.add_argument("--runs", type=int, default=9, help="timed runs of each graph (default 9)")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="threads of each session (default: one for each core); 1 on a busy machine",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models or MODELS:
            model = MODELS[name]
            measured = (measure if isinstance(model, Model) else measure_tensors)(
                name, model, arguments.runs, arguments.threads, Path(folder)
            )
            print(json.dumps({name: measured}, indent=2), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
