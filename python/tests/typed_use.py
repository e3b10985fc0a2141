"""Uses of the package whose types mypy checks; it is not run."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import tileforge


def arrays(engine: tileforge.Engine, eight: NDArray[np.uint8], deep: NDArray[np.uint16], image: Image.Image) -> None:
    assert_type(engine.upscale(eight), NDArray[np.uint8])
    assert_type(engine.upscale(deep), NDArray[np.uint16])
    assert_type(engine.upscale(image), Image.Image)
    assert_type(engine.submit_upscale(eight), tileforge.Future[NDArray[np.uint8]])
    assert_type(engine.inpaint(image, eight), Image.Image)
    assert_type(engine.depth(image), NDArray[np.float32])
    assert_type(engine.restore(deep, size=720), NDArray[np.uint16])
    assert_type(engine.restore([image, image], seed=7), list[Image.Image])
    assert_type(engine.submit_restore(eight), tileforge.Future[NDArray[np.uint8]])
    assert_type(engine.generate("a fox", on_step=lambda step: print(step.done)), NDArray[np.uint8])
    engine.upscale("a name")  # type: ignore[type-var]
    engine.upscale(eight.astype(np.float64))  # type: ignore[type-var]
    engine.generate(7)  # type: ignore[arg-type]


async def awaited(engine: tileforge.Engine, eight: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return await engine.submit_upscale(eight)
