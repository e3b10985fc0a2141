"""Pictures of the server and of engines.

The server has tensors `IMAGE`, `[pictures, height, width, channels]`, and `MASK`, `[pictures, height, width]`, both of
float32 from 0 to 1. A mask is 1 where a picture is transparent or is to be made anew.
"""

from typing import Any

import comfy.model_management
import numpy as np
import torch
from numpy.typing import NDArray

import tileforge

Floats = NDArray[np.float32]


def array(values: Any) -> Floats:
    """A tensor as an array in this machine's memory. NumPy has no bfloat16, so that the tensor becomes floats first."""
    return np.asarray(values.detach().cpu().float().numpy())


def tensor(values: "NDArray[Any]") -> Any:
    """An array as a tensor, where the server keeps pictures."""
    made = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return made.to(comfy.model_management.intermediate_device())


def pictures(image: Any, name: str = "image") -> list[Floats]:
    """The pictures of an `IMAGE`, `[height, width, channels]`; `clipped` gives what an engine takes.

    Raises:
        InvalidInput: There is none, or it has other axes.
    """
    if image.ndim != 4 or image.shape[0] == 0 or image.shape[3] not in (1, 3, 4):
        expected = "pictures [number, height, width, 1, 3 or 4]"
        raise tileforge.InvalidInput(f"{name}: expected {expected}, found {list(image.shape)}")
    # Views: a film of pictures is not copied as a whole.
    return list(array(image))


def clipped(picture: Floats) -> Floats:
    """A picture without values outside of 0 to 1, which the server's nodes may make.

    Raises:
        InvalidInput: It has NaN, which some models make instead of a picture.
    """
    if np.isnan(picture).any():
        raise tileforge.InvalidInput("expected pictures of numbers, found one with NaN")
    return np.clip(picture, 0, 1)


def masks(mask: Any, sizes: list[tuple[int, int]], name: str = "mask") -> "list[Floats | None]":
    """The mask of each of some pictures with these heights and widths; `None` where a picture has none.

    Raises:
        InvalidInput: Their number or size is another one.
    """
    if mask is None:
        return [None] * len(sizes)
    values = array(mask)
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or len(values) not in (1, len(sizes)):
        expected = f"1 or {len(sizes)} masks [number, height, width]"
        raise tileforge.InvalidInput(f"{name}: expected {expected}, found {list(values.shape)}")
    made: list[Floats | None] = []
    for number, size in enumerate(sizes):
        one = values[number if len(values) > 1 else 0]
        if one.shape == size:
            made.append(clipped(one))
        elif not one.any():
            # What the server's node for files gives for a picture without alpha: zeros, 64 by 64.
            made.append(None)
        else:
            expected = f"the size of the picture, {size[1]}x{size[0]}"
            raise tileforge.InvalidInput(f"{name}: expected {expected}, found {one.shape[1]}x{one.shape[0]}")
    return made


def eight_bits(picture: Floats) -> "NDArray[np.uint8]":
    """The nearest samples of 8 bits, as files have them."""
    return np.rint(clipped(picture) * 255).astype(np.uint8)


def floats(picture: "NDArray[Any]") -> Floats:
    """Samples of 8 bits as the server has them; its node that saves files gets the same samples from these."""
    scale = np.float32(255 if picture.dtype == np.uint8 else 1)
    return np.asarray(picture, np.float32) / scale
