"""The choice between samples as files have them and floats, which nodes for pictures share."""

from collections.abc import Callable
from typing import Any

from comfy_api.latest import io

from . import pictures

EIGHT_BITS = "8 bit"


def entry() -> io.Input:
    """The socket."""
    return io.Combo.Input(
        "samples",
        options=[EIGHT_BITS, "float"],
        default=EIGHT_BITS,
        optional=True,
        tooltip="8 bit: as in files; saved pictures equal those of `runtime infer`. float: nothing is rounded, for "
        "pictures that other nodes made or change further.",
    )


def prepared(samples: str) -> "Callable[[pictures.Floats], Any]":
    """What makes a picture of the server one for an engine."""
    return pictures.eight_bits if samples == EIGHT_BITS else pictures.clipped
