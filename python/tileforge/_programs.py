"""The programs of the package: `exporter`, `engine-builder`, `runtime` and `tileforge-server`."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tileforge import _libraries, _system
from tileforge._errors import DoesNotFit, Failed, InvalidInput

_USAGE, _DOES_NOT_FIT = 2, 3


def _program(name: str) -> str:
    return str(Path(__file__).parent / "bin" / f"{name}{_system.PROGRAM}")


def _environment() -> dict[str, str]:
    """The environment of a program, which finds ONNX Runtime where this package finds it."""
    environment = dict(os.environ)
    if "ORT_DYLIB_PATH" not in environment:
        try:
            environment["ORT_DYLIB_PATH"] = _libraries.onnxruntime()
        except Failed:
            # Not every command needs it. One that does says where it looked.
            pass
    return environment


def _run(name: str, arguments: Sequence[str | os.PathLike[str]]) -> str:
    """Runs a program to its end. Ctrl-C ends it."""
    line = [_program(name), *(os.fspath(argument) for argument in arguments)]
    done = subprocess.run(
        line, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode == 0:
        return done.stdout.strip()
    classes = {_USAGE: InvalidInput, _DOES_NOT_FIT: DoesNotFit}
    raise classes.get(done.returncode, Failed)(done.stderr.strip() or f"{name} ended with {done.returncode}")


def _each(option: str, values: Iterable[str]) -> list[str]:
    """An option that may be given again and again."""
    return [word for value in values for word in (option, value)]


def export(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    weights: str = "link",
    shapes: str | None = None,
    components: Sequence[str] = (),
    loras: Sequence[str] = (),
    hyperparameters: Mapping[str, object] | None = None,
) -> list[Path]:
    """Writes the ONNX graph of a checkpoint, or those of a diffusion pipeline, by the program `exporter`.

    Args:
        checkpoint: A `.safetensors`, `.pth`, `.pt`, `.ckpt` or `.bin` file, the index of a sharded one, or a folder.
        output: Where the graph goes; for a pipeline, the folder for all its graphs.
        weights: `"link"`: they stay in the checkpoint, which is linked beside the graph; `"copy"`: in one file beside
            the graph; `"inline"`: in the graph's file, at most 2 GiB.
        shapes: Fixed input shapes, such as `"image:1x3x256x256"`; without them, sizes stay open.
        components: Which graphs to make, where there are several.
        loras: Files of low-rank adaptations to merge, `FILE` or `FILE:SCALE`.
        hyperparameters: Those that the checkpoint does not determine.

    Returns:
        The graphs.

    Raises:
        InvalidInput: The arguments do not go together.
        Failed: The checkpoint is not known, damaged or not complete: the text says which tensors.
    """
    line: list[str | os.PathLike[str]] = ["export", checkpoint, "-o", output, "--weights", weights]
    if shapes is not None:
        line += ["--shapes", shapes]
    line += _each("--component", components)
    line += _each("--lora", loras)
    line += _each("--set", (f"{name}={value}" for name, value in (hyperparameters or {}).items()))
    return [Path(path) for path in _run("exporter", line).splitlines()]


def build(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    profile: str | os.PathLike[str] = "cpu",
    precision: str | None = None,
    sizes: Sequence[str] = (),
    components: Sequence[str] = (),
    calibration: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> Path:
    """Builds an engine and checks it, by the program `engine-builder`. This takes minutes for large models.

    Args:
        model: A checkpoint, a diffusion pipeline, an exported graph or a model file.
        output: The directory of the engine.
        profile: The kind of machine, such as `"cpu"`, `"openvino"` or `"rtx4090"`, or the file of a profile.
        precision: `"fp32"`, `"fp16"`, `"bf16"`, `"int8"`, `"fp8"`, `"fp16-weights"`, `"int8-weights"`, or `"auto"`, the
            fastest on this processor; by default as the profile says.
        sizes: Sizes of pictures, such as `"512x512"`.
        components: Which graphs to build, where there are several.
        calibration: A folder of pictures that activations are measured on, for INT8 and FP8.
        options: More options of `engine-builder build`, each word on its own.

    Returns:
        The directory of the engine.

    Raises:
        InvalidInput: The arguments do not go together.
        DoesNotFit: It cannot be built on this machine.
        Failed: The model is not known, or the engine is not good enough: the text has the figures.
    """
    line: list[str | os.PathLike[str]] = ["build", model, "--profile", profile, "-o", output]
    if precision is not None:
        line += ["--precision", precision]
    line += _each("--size", sizes)
    line += _each("--component", components)
    if calibration is not None:
        line += ["--calibration", calibration]
    _run("engine-builder", [*line, *options])
    return Path(output)


def main() -> None:
    """Becomes the program that this script is named after."""
    name = Path(sys.argv[0]).name.removesuffix(_system.PROGRAM)
    _system.become(_program(name), sys.argv[1:], _environment())
