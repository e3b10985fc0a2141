"""What scripts/try_windows_wheel.sh runs in Python for Windows: try_wheel.py ENGINE PHOTO ENLARGED CHECKPOINT FOLDER

ENLARGED is the photo as `runtime infer` of the wheel has enlarged it.
"""

import asyncio
import concurrent.futures
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tileforge
from PIL import Image


def size_of(engine: tileforge.Engine) -> tuple[int, ...]:
    """In another process."""
    return engine.upscale(np.zeros((24, 32, 3), np.uint8)).shape


def main() -> None:
    """Each line that is printed has held."""
    source, photo, enlarged, checkpoint, folder = map(Path, sys.argv[1:])
    print(f"Python {sys.version}, tileforge {tileforge.__version__}, ONNX Runtime {onnxruntime.__version__}")
    engine = tileforge.open(source)
    assert (engine.info.task, engine.info.scale, engine.info.provider) == ("upscale", 4, "cpu")
    print(engine.info.verdict)

    picture = np.asarray(Image.open(photo).convert("RGB"))
    large = engine.upscale(picture)
    assert np.array_equal(large, np.asarray(Image.open(enlarged)))
    print("an array has the pixels of `runtime infer`")

    part = picture[:48, :64]
    small = engine.upscale(part)
    assert np.array_equal(np.asarray(engine.upscale(Image.fromarray(part))), small)
    floats = engine.upscale(part.astype(np.float32) / 255)
    assert floats.dtype == np.float32 and np.abs(floats * 255 - small).max() < 1
    print("an image of Pillow, and floats")

    futures = [engine.submit_upscale(part) for _ in range(4)]
    for future in concurrent.futures.as_completed(futures):
        assert np.array_equal(future.result(), small)

    async def awaited() -> np.ndarray:
        return await engine.submit_upscale(part)

    assert np.array_equal(asyncio.run(awaited()), small)
    assert [frame.shape for frame in engine.frames(part[:, x : x + 32] for x in range(3))] == [(192, 128, 3)] * 3
    print("futures, asyncio and frames")

    image = (picture[:24, :24].astype(np.float32) / 255).transpose(2, 0, 1)[None]
    made = engine.run({"image": image})["upscaled"]
    session = onnxruntime.InferenceSession(str(next(source.glob("model-1x3x*.onnx"))))
    assert np.array_equal(session.run(None, {"image": image})[0], made)
    print("tensors, as the package onnxruntime in the same process gives them")

    cancelled = engine.submit_upscale(np.tile(picture, (3, 3, 1)))
    cancelled.cancel()
    for wrong, expected in (
        (lambda: engine.upscale(part.astype(np.float64)), tileforge.InvalidInput),
        (lambda: engine.upscale(picture, timeout=0.01), tileforge.DeadlineExceeded),
        (lambda: tileforge.open(folder / "nothing"), tileforge.InvalidInput),
        (cancelled.result, concurrent.futures.CancelledError),
    ):
        try:
            wrong()
        except (tileforge.TileforgeError, concurrent.futures.CancelledError) as error:
            assert isinstance(error, expected), repr(error)
        else:
            raise AssertionError(f"expected {expected}")
    print("wrong input, a deadline, a folder without an engine, a cancelled request")

    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        assert processes.submit(size_of, engine).result() == (96, 128, 3)
    print("an engine is pickled to another process")

    graph = folder / "Größe.onnx"
    assert tileforge.export(checkpoint, graph) == [graph] and graph.is_file()
    try:
        tileforge.export(photo, folder / "photo.onnx")
    except tileforge.Failed as error:
        assert photo.name in str(error)
    print("the programs of the wheel: a graph is exported, and an error is an exception")


if __name__ == "__main__":
    main()
