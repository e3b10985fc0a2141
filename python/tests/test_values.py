"""Values that are not as they should be: exceptions, and no crash."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tileforge

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "longdouble", "complex64", "S4", "U4", "object", "datetime64[s]", ">u2", "<u2", ">f4", "u1,u1",
]  # fmt: skip


class Raises:
    """An array of another library that fails."""

    shape = (8, 8)

    def __array__(self, *arguments: object, **options: object) -> np.ndarray:
        raise ZeroDivisionError("no array today")


class Lies:
    """Says that it is an array."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (1 << 40, 1 << 40), "typestr": "|u1", "data": (0, True), "version": 3}


def value(numbers: random.Random) -> object:
    """Something that is perhaps a picture."""
    kind = numbers.randrange(10)
    if kind == 0:
        others: list[Callable[[], object]] = [
            lambda: None, lambda: 7, lambda: "picture", lambda: b"\0" * 48, lambda: [], lambda: [[1, 2], [3, 4]],
            lambda: {}, lambda: memoryview(b"\0" * 64), lambda: object(), lambda: np.uint8(3), Lies,
            lambda: np.ma.masked_array(np.zeros((8, 8), np.uint8)), lambda: type, lambda: float("nan"),
            lambda: Image.new(numbers.choice(["1", "P", "CMYK", "F", "I", "HSV", "YCbCr", "RGBa"]), (8, 8)),
            lambda: Image.new("RGB", (0, 8)),
        ]  # fmt: skip
        return numbers.choice(others)()
    axes = numbers.choice([0, 1, 2, 2, 2, 3, 3, 3, 4, 5])
    lengths = [numbers.choice([0, 1, 2, 3, 4, 5, 9]) for _ in range(axes)]
    array = np.zeros(lengths, numbers.choice(DTYPES))
    if array.dtype.kind == "f" and numbers.random() < 0.5:
        array += numbers.choice([0.5, 2.0, -1.0, np.nan, np.inf])
    for axis in range(array.ndim):
        if numbers.random() < 0.3:
            array = np.flip(array, axis)
    if array.size and array.ndim and numbers.random() < 0.2:
        array = np.broadcast_to(array[..., :1], (*array.shape[:-1], numbers.choice([1, 3, 7])))
    if array.ndim and numbers.random() < 0.2:
        array = array[::2]
    return array


def test_a_thousand_random_values(upscaler: tileforge.Engine, engines: Path) -> None:
    numbers = random.Random(34)
    depth, pipeline = tileforge.open(engines / "depth"), tileforge.open(engines / "sd")
    calls: list[Callable[[Any], object]] = [
        upscaler.upscale,
        lambda given: upscaler.submit_upscale(given).result(),
        lambda given: depth.depth(given, sensor=given),
        lambda given: upscaler.run({"image": given}),
        lambda given: pipeline.decode(given),
        lambda given: pipeline.encode([given]),
        lambda given: pipeline.generate("a", steps=1, image=given, mask=given),
        lambda given: list(upscaler.frames([given])),
    ]
    outcomes = {"made": 0, "refused": 0}
    for _ in range(1000):
        given, call = value(numbers), numbers.choice(calls)
        try:
            call(given)
            outcomes["made"] += 1
        except tileforge.InvalidInput:
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"{type(given)} {getattr(given, 'dtype', '')} {getattr(given, 'shape', '')}")
            raise
    assert outcomes["made"] > 20 and outcomes["refused"] > 500, outcomes


def test_options_of_open(engines: Path, tmp_path: Path) -> None:
    engine = engines / "upscale"
    bad: list[dict[str, Any]] = [
        {"provider": "abacus"}, {"provider": ""}, {"threads": 0}, {"streams": 0}, {"waiting": 0},
        {"part": "none"}, {"verify_key": engine / "manifest.json"}, {"verify_key": tmp_path / "none"},
    ]  # fmt: skip
    for options in bad:
        with pytest.raises(tileforge.InvalidInput):
            tileforge.open(engine, **options)
    for wrong in [{"threads": "two"}, {"threads": -1}, {"devices": [-1]}, {"waiting": 1 << 70}, {"devices": [1 << 40]}]:
        with pytest.raises((TypeError, OverflowError, ValueError)):
            tileforge.open(engine, **wrong)  # type: ignore[arg-type]
    for source in [tmp_path, tmp_path / "none", __file__, "", "oci://", "oci://nowhere", "a\0b"]:
        with pytest.raises((tileforge.TileforgeError, ValueError)):
            tileforge.open(source)
    with pytest.raises(TypeError):
        tileforge.open(7)  # type: ignore[arg-type]
    # No GPU is seen by the tests.
    with pytest.raises(tileforge.DoesNotFit):
        tileforge.open(engine, provider="cuda").upscale(np.zeros((8, 8), np.uint8))
    with pytest.raises(tileforge.Failed, match="loaded"):
        other = tmp_path / "libonnxruntime.so"
        other.write_bytes(b"")
        tileforge.open(engine, onnxruntime=other)


def test_sizes_that_no_memory_holds(upscaler: tileforge.Engine) -> None:
    for shape in [(1 << 20, 1 << 20, 3), (1 << 33, 1), (1, 1 << 33), (40_000, 40_000)]:
        with pytest.raises(tileforge.InvalidInput):
            upscaler.upscale(np.broadcast_to(np.uint8(0), shape))
    # The result would be 16 times as large.
    with pytest.raises(tileforge.InvalidInput, match="too large"):
        upscaler.upscale(np.broadcast_to(np.float32(0), (15_000, 17_000)))
    with pytest.raises(tileforge.InvalidInput):
        upscaler.run({"image": np.broadcast_to(np.float32(0), (1, 3, 1 << 20, 1 << 20))})


def test_what_an_object_raises_is_not_changed(upscaler: tileforge.Engine) -> None:
    with pytest.raises(ZeroDivisionError, match="no array today"):
        upscaler.upscale(Raises())  # type: ignore[type-var]
    with pytest.raises(ZeroDivisionError):
        upscaler.run({"image": Raises()})


def test_requests_of_the_module_itself(upscaler: tileforge.Engine) -> None:
    from tileforge import _native

    with pytest.raises(TypeError):
        _native.Engine()
    with pytest.raises(TypeError):
        _native.Request()
    native = upscaler._native
    with pytest.raises(tileforge.InvalidInput):
        native.upscale((np.zeros(3, np.uint8), 1 << 31, 1 << 31, 3), None)
    request = native.upscale((np.zeros(3, np.uint8), 1, 1, 3), None)
    assert request.wait(60) and request.wait(-1.0) and request.wait(float("nan"))
    request.take()
    with pytest.raises(tileforge.Failed, match="taken"):
        request.take()
    with pytest.raises(TypeError):
        native.upscale((np.zeros((2, 2), np.uint8), 2, 2, 1), None)  # type: ignore[arg-type]
