"""VapourSynth: clips through an engine.

>>> import tileforge.vapoursynth
>>> clip = tileforge.vapoursynth.upscale(clip, "engines/cpu/x4plus")

This module needs the package `vapoursynth`, of version 74 or newer.
"""

import os
from typing import Any

import numpy as np

import tileforge

# Values of `_Matrix`: what a network takes, and what says nothing.
_RGB, _UNSPECIFIED = 0, 2


def upscale(
    clip: Any,
    engine: "tileforge.Engine | str | os.PathLike[str]",
    *,
    matrix: "str | None" = None,
    in_flight: "int | None" = None,
    **options: Any,
) -> Any:
    """Enlarges or restores the frames of a clip.

    RGB and grey go through the engine as they are. YUV becomes RGB on the way, of 16 bits or floats, with the
    clip's matrix, range and place of chroma, and YUV again behind the engine.

    Args:
        clip: A clip of constant format and size, progressive: RGB, grey or YUV, of 8 to 16 bits or floats of 32 bits.
        engine: The engine, or where it is, as for `tileforge.open`.
        matrix: The matrix of a clip in YUV whose frames do not say it, such as `"709"`.
        in_flight: How many frames are computed at the same time; as many as VapourSynth has threads if not given.
            Those of the same size run together where that changes no byte.
        options: As for `tileforge.open`.

    Returns:
        The clip, of the same format.

    Raises:
        InvalidInput: The clip has another format, or changes it; its frames do not say their matrix; the engine is for
            another task.
    """
    import vapoursynth as vs

    opened = engine if isinstance(engine, tileforge.Engine) else tileforge.open(engine, **options)
    scale = opened.info.scale
    if scale is None:
        raise tileforge.InvalidInput(f"expected an engine that enlarges or restores, found one for {opened.info.task}")
    form = clip.format
    if form is None or not clip.width or not clip.height:
        raise tileforge.InvalidInput("expected a clip of constant format and size, found one that changes them")
    if form.sample_type == vs.FLOAT and form.bits_per_sample != 32:
        raise tileforge.InvalidInput(f"expected floats of 32 bits, found {form.name}: convert the clip first")
    if form.sample_type == vs.INTEGER and form.bits_per_sample > 16:
        raise tileforge.InvalidInput(f"expected up to 16 bits, found {form.name}: convert the clip first")
    count = vs.core.num_threads if in_flight is None else in_flight
    if count < 1:
        raise tileforge.InvalidInput(f"in_flight: expected 1 or more, found {count}")
    if form.color_family != vs.YUV:
        return _frames(clip, opened, scale, count)

    said = clip.get_frame(0).props
    # Floats need no more room; whole numbers get all of 16 bits, so that the matrix costs no level.
    inside = vs.RGBS if form.sample_type == vs.FLOAT else vs.RGB48
    there: dict[str, Any] = {"format": inside}
    back: dict[str, Any] = {"format": form.id}
    if matrix is not None:
        there["matrix_in_s"] = back["matrix_s"] = matrix
    elif said.get("_Matrix", _UNSPECIFIED) in (_RGB, _UNSPECIFIED):
        raise tileforge.InvalidInput(
            f'the frames of this clip in {form.name} do not say their matrix: give it, such as matrix="709"'
        )
    else:
        back["matrix"] = int(said["_Matrix"])
    # RGB has the full range and no place of chroma: what the clip said is lost on the way.
    if "_Range" in said:
        full = bool(said["_Range"])
    else:
        # The same, the other way round, of older versions.
        full = "_ColorRange" in said and said["_ColorRange"] == 0
    back["range_s"] = "full" if full else "limited"
    if "_ChromaLocation" in said:
        back["chromaloc"] = int(said["_ChromaLocation"])
    return _frames(clip.resize.Bicubic(**there), opened, scale, count).resize.Bicubic(**back)


def _frames(clip: Any, engine: tileforge.Engine, scale: int, in_flight: int) -> Any:
    """A clip in RGB or grey through the engine."""
    import vapoursynth as vs

    # Samples that a picture has: of 8 or 16 bits, or floats. 9 to 15 bits become 16 and come back without loss.
    most = None if clip.format.sample_type == vs.FLOAT else (1 << clip.format.bits_per_sample) - 1
    factor = None if most in (None, 0xFF, 0xFFFF) else 0xFFFF / most

    def made_of(number: int, source: Any, large: Any) -> Any:
        if source.props.get("_FieldBased", 0):
            raise tileforge.InvalidInput(f"frame {number} is interlaced: deinterlace the clip first")
        picture = np.stack([np.asarray(source[plane]) for plane in range(clip.format.num_planes)], axis=-1)
        if factor is not None:
            picture = np.rint(picture * factor).astype(np.uint16)
        result = engine.upscale(picture)
        if factor is not None:
            result = np.rint(result / factor).astype(np.uint16)
        made = large.copy()
        made.props.clear()
        made.props.update(source.props)
        for plane in range(clip.format.num_planes):
            np.copyto(np.asarray(made[plane]), result[:, :, plane])
        return made

    # VapourSynth calls one function for one frame at a time. Each of these clips has every n-th frame, and a function
    # of its own.
    parts = []
    for part in range(min(in_flight, clip.num_frames)):

        def select(n: int, f: list[Any], part: int = part) -> Any:
            return made_of(n * in_flight + part, *f)

        small = clip if in_flight == 1 else clip.std.SelectEvery(in_flight, part, modify_duration=False)
        large = small.std.BlankClip(width=clip.width * scale, height=clip.height * scale, keep=True)
        parts.append(large.std.ModifyFrame(clips=[small, large], selector=select))
    whole = vs.core.std.Interleave(parts, extend=True, modify_duration=False)
    return whole.std.Trim(length=clip.num_frames)
