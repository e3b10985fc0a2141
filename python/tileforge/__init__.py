"""Trained image models on this machine's devices: open an engine, give it a picture, get a picture.

>>> import tileforge
>>> engine = tileforge.open("engines/cpu/compact-x4")
>>> large = engine.upscale(picture)

Pictures are arrays of NumPy, `[height, width]` or `[height, width, channels]`, of `uint8` (0 to 255), `uint16` (0 to
65535) or `float32` (0 to 1), with any strides, or images of Pillow. A result is of the same kind as what was given.

Errors are of the class `TileforgeError`, by what can be done about them: `InvalidInput`, `DoesNotFit`, `Busy`,
`Cancelled`, `DeadlineExceeded` and `Failed`.

The interpreter's lock is free while an engine computes. Engines can be used from any number of threads.
"""

from typing import TYPE_CHECKING

from tileforge._errors import Busy, Cancelled, DeadlineExceeded, DoesNotFit, Failed, InvalidInput, TileforgeError
from tileforge._native import VERSION as __version__
from tileforge._open import open
from tileforge._programs import build, export

if TYPE_CHECKING:
    from tileforge._engine import Engine, Info, Step
    from tileforge._future import Future

__all__ = [
    "Busy",
    "Cancelled",
    "DeadlineExceeded",
    "DoesNotFit",
    "Engine",
    "Failed",
    "Future",
    "Info",
    "InvalidInput",
    "Step",
    "TileforgeError",
    "__version__",
    "build",
    "export",
    "open",
]


def __getattr__(name: str) -> object:
    # These need modules that take time to import, and are seldom named.
    if name == "Future":
        from tileforge._future import Future

        return Future
    if name in ("Engine", "Info", "Step"):
        from tileforge import _engine

        return getattr(_engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
