"""Conversion of pictures and tensors from and to users' objects."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tileforge._errors import Failed, InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tileforge import _native

# The largest picture that files may have, too: 1 GiB of samples.
_PICTURE_BYTES = 1 << 30
_TENSOR_BYTES = 4 << 30
_SIDE = (1 << 32) - 1

_SAMPLES = ("uint8", "uint16", "float32")

# Element types of graphs by those of NumPy.
_ELEMENTS = {
    "bool": "bool",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "float32": "f32",
    "bfloat16": "bf16",
}

# Modes of Pillow whose samples are those of the picture.
_MODES = ("L", "LA", "RGB", "RGBA", "I;16")


def _array(value: Any, name: str) -> "NDArray[Any]":
    """The array that an object is or gives. Errors of the object's own methods are not changed."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInput(f"{name}: expected an array without a mask: fill it first")
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise InvalidInput(f"{name}: expected a tensor in this machine's memory: {error}") from error
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__array_interface__"):
        try:
            return np.asarray(value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{name}: expected an array: {error}") from error
    raise InvalidInput(f"{name}: expected an array, found {type(value).__name__}")


def _private(array: "NDArray[Any]", name: str, most: int) -> "NDArray[Any]":
    """A copy on one axis that only this package has, whatever the strides, and in the machine's order of bytes."""
    if array.nbytes > most:
        raise InvalidInput(f"{name}: expected at most {most} bytes, found {array.nbytes}")
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True, subok=False).reshape(-1)


def _is_image(value: object) -> bool:
    """Whether it is an image of Pillow, which is not imported for that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


Back = Callable[["_native.Picture"], Any]


def picture(value: object, name: str = "picture") -> "tuple[_native.Picture, Back]":
    """A picture, and what makes a result of the same kind."""
    if _is_image(value):
        return _image(value, name)
    array = _array(value, name)
    given = _pixels(array, name)
    return given, shaped if array.ndim == 3 else _flat


def frames(value: object) -> "tuple[list[_native.Picture], Callable[[list[_native.Picture]], Any]]":
    """A picture, or frames one after the other, and what makes results of the same kind."""
    if isinstance(value, (list, tuple)):
        each = [picture(frame, "frame") for frame in value]
        backs = [back for _, back in each]
        return [given for given, _ in each], lambda made: [back(one) for back, one in zip(backs, made, strict=True)]
    if not _is_image(value):
        array = _array(value, "picture")
        if array.ndim == 4:
            return [_pixels(frame, "frame") for frame in array], lambda made: np.stack([shaped(one) for one in made])
        value = array
    given, back = picture(value)
    return [given], lambda made: back(made[0])


def _pixels(array: "NDArray[Any]", name: str) -> "_native.Picture":
    if array.dtype.newbyteorder("=").name not in _SAMPLES:
        raise InvalidInput(f"{name}: expected samples of uint8, uint16 or float32, found {array.dtype}")
    if array.ndim not in (2, 3):
        raise InvalidInput(f"{name}: expected [height, width] or [height, width, channels], found {_text(array)}")
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    if not 1 <= channels <= 4:
        raise InvalidInput(f"{name}: expected 1 to 4 channels on the last axis, found {_text(array)}")
    if not (1 <= height <= _SIDE and 1 <= width <= _SIDE):
        raise InvalidInput(f"{name}: expected at least one pixel, found {_text(array)}")
    return _private(array, name, _PICTURE_BYTES), height, width, channels


def _text(array: "NDArray[Any]") -> str:
    return "[" + ", ".join(map(str, array.shape)) + "]"


def shaped(made: "_native.Picture") -> "NDArray[Any]":
    """[height, width, channels]"""
    samples, height, width, channels = made
    return samples.reshape(height, width, channels)


def _flat(made: "_native.Picture") -> "NDArray[Any]":
    """[height, width] where there is one channel."""
    array = shaped(made)
    return array[:, :, 0] if array.shape[2] == 1 else array


def _image(value: Any, name: str) -> "tuple[_native.Picture, Back]":
    if value.mode not in _MODES:
        raise InvalidInput(
            f"{name}: expected an image of mode {', '.join(_MODES)}, found {value.mode}: convert it first"
        )
    given = _pixels(np.asarray(value), name)
    profile = value.info.get("icc_profile")

    def back(made: "_native.Picture") -> Any:
        result = sys.modules["PIL.Image"].fromarray(_flat(made))
        if profile is not None:
            # The samples are in the same colours as before.
            result.info["icc_profile"] = profile
        return result

    return given, back


def depth_map(value: object) -> "_native.Map":
    """A sensor's map in metres, [height, width]."""
    array = _array(value, "sensor")
    if array.ndim != 2 or array.dtype.newbyteorder("=").name != "float32":
        raise InvalidInput(
            f"sensor: expected metres as float32, [height, width], found {array.dtype} {_text(array)}"
        )
    height, width = array.shape
    if not (1 <= height <= _SIDE and 1 <= width <= _SIDE):
        raise InvalidInput(f"sensor: expected at least one pixel, found {_text(array)}")
    return _private(array, "sensor", _PICTURE_BYTES), height, width


def latent(
    value: object, size: "tuple[int, int] | None" = None, frames: "int | None" = None, name: str = "latent"
) -> "_native.Latent":
    """A latent, [channels, height, width], or with latent frames before the height."""
    array = _array(value, name)
    if array.dtype.newbyteorder("=").name != "float32" or array.ndim not in (3, 4):
        expected = "float32, [channels, height, width] or [channels, frames, height, width]"
        raise InvalidInput(f"{name}: expected {expected}, found {array.dtype} {_text(array)}")
    if not all(1 <= length <= _SIDE for length in array.shape):
        raise InvalidInput(f"{name}: expected at least one value on each axis, found {_text(array)}")
    if size is not None:
        size = (_count(size[0], "size"), _count(size[1], "size"))
    if frames is not None:
        frames = _count(frames, "frames")
    latent_frames = array.shape[1] if array.ndim == 4 else None
    height, width = array.shape[-2:]
    return _private(array, name, _TENSOR_BYTES), array.shape[0], latent_frames, height, width, size, frames


def _count(value: int, name: str) -> int:
    if not 1 <= value <= _SIDE:
        raise InvalidInput(f"{name}: expected at least 1, found {value}")
    return int(value)


def latent_array(made: "_native.Latent") -> "NDArray[np.float32]":
    """[channels, height, width], or with latent frames before the height."""
    values, channels, frames, height, width, _, _ = made
    return values.reshape(channels, *([] if frames is None else [frames]), height, width)


def tensor(name: str, value: object) -> "_native.Tensor":
    """A tensor of any shape."""
    if not isinstance(name, str):
        raise InvalidInput(f"expected names of inputs, found {type(name).__name__}")
    array = _array(value, name)
    element = _ELEMENTS.get(array.dtype.newbyteorder("=").name)
    if element is None:
        raise InvalidInput(f"{name}: expected elements of {', '.join(_ELEMENTS)}, found {array.dtype}")
    return name, element, list(array.shape), _private(array, name, _TENSOR_BYTES).view(np.uint8)


def tensor_array(element: str, shape: list[int], values: "NDArray[np.uint8]") -> "NDArray[Any]":
    """An array of the element type of a graph."""
    names = {short: name for name, short in _ELEMENTS.items()}
    name: Any = names[element]
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise Failed("NumPy has no bfloat16: pip install ml_dtypes") from error
        name = ml_dtypes.bfloat16
    array: NDArray[Any] = values.view(name).reshape(shape)
    return array
