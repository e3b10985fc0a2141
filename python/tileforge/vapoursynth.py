"""VapourSynth: clips through an engine.

>>> import vapoursynth as vs, tileforge.vapoursynth
>>> clip = tileforge.vapoursynth.upscale(clip, "engines/cpu/x4plus")

The clip is RGB or grey, of 8 to 16 bits or 32-bit floats. Convert others first, with the matrix that they were made
with: `clip.resize.Bicubic(format=vs.RGB48, matrix_in_s="709")`. This module needs the package `vapoursynth`.
"""

import os
from typing import Any

import numpy as np

import tileforge


def upscale(clip: Any, engine: "tileforge.Engine | str | os.PathLike[str]", **options: Any) -> Any:
    """Enlarges or restores the frames of a clip.

    Args:
        clip: A clip of constant format and size: RGB or grey, of 8 to 16 bits or 32-bit floats from 0 to 1.
        engine: The engine, or where it is, as for `tileforge.open`.
        options: As for `tileforge.open`.

    Returns:
        The clip, of the same format. Frames in flight run together where that changes no byte.

    Raises:
        InvalidInput: The clip has another format, or changes it; the engine is for another task.
    """
    import vapoursynth as vs

    opened = engine if isinstance(engine, tileforge.Engine) else tileforge.open(engine, **options)
    scale = opened.info.scale
    if scale is None:
        raise tileforge.InvalidInput(f"expected an engine that enlarges or restores, found one for {opened.info.task}")
    form = clip.format
    if form is None or clip.width == 0 or form.color_family not in (vs.RGB, vs.GRAY):
        name = "changing formats" if form is None else form.name
        raise tileforge.InvalidInput(f"expected a clip of RGB or grey, found {name}: convert it first")
    is_float = form.sample_type == vs.FLOAT
    if is_float and form.bits_per_sample != 32:
        raise tileforge.InvalidInput("expected floats of 32 bits, found 16: convert the clip first")
    most = (1 << form.bits_per_sample) - 1

    def samples(frame: Any) -> "np.ndarray[Any, Any]":
        """[height, width, channels], of 8 bits, of 16 bits, or floats."""
        planes = [np.asarray(frame[plane]) for plane in range(form.num_planes)]
        picture = np.stack(planes, axis=-1)
        if is_float or most in (0xFF, 0xFFFF):
            return picture
        # 10 bits become 16 and back without loss.
        return np.round(picture * (65535.0 / most)).astype(np.uint16)

    def write(picture: "np.ndarray[Any, Any]", frame: Any) -> Any:
        made = frame.copy()
        if not is_float and most not in (0xFF, 0xFFFF):
            picture = np.round(picture * (most / 65535.0)).astype(np.uint16)
        for plane in range(form.num_planes):
            np.copyto(np.asarray(made[plane]), picture[:, :, plane])
        return made

    # The frames' sizes and properties; its pixels are replaced.
    large = clip.std.BlankClip(width=clip.width * scale, height=clip.height * scale, keep=True)

    def select(n: int, f: list[Any]) -> Any:
        picture = opened.upscale(samples(f[0]))
        made = write(picture, f[1])
        made.props.update(f[0].props)
        return made

    return large.std.ModifyFrame(clips=[clip, large], selector=select)


__all__ = ["upscale"]
