"""Clips of VapourSynth through `tileforge.vapoursynth`: `scripts/test_vapoursynth.sh` starts pytest on this file.

They must be what the program `runtime infer` and `Engine.upscale` make of the same frames.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vapoursynth as vs
from PIL import Image

import tileforge
import tileforge.vapoursynth

REPOSITORY = Path(__file__).resolve().parents[2]
BESIDE = Path(sys.executable).parent
ENGINE = Path(os.environ["TILEFORGE_TEST_ENGINE"])
INTEGERS = {vs.RGB24: np.uint8, vs.GRAY8: np.uint8, vs.RGB48: np.uint16, vs.GRAY16: np.uint16}


@pytest.fixture(scope="session")
def engine() -> tileforge.Engine:
    return tileforge.open(ENGINE)


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    with Image.open(REPOSITORY / "tests/images/coffee.png") as image:
        return np.asarray(image.convert("RGB"))


def pixels(frame: Any) -> np.ndarray:
    return np.stack([np.asarray(frame[plane]) for plane in range(frame.format.num_planes)], axis=-1)


def clip_of(form: int, pictures: list[np.ndarray]) -> Any:
    """A clip whose frames are these pictures, [height, width, channels], and say their number."""
    height, width, channels = pictures[0].shape
    blank = vs.core.std.BlankClip(
        format=form, width=width, height=height, length=len(pictures), fpsnum=30000, fpsden=1001, keep=True
    )

    def select(n: int, f: Any) -> Any:
        frame = f.copy()
        for plane in range(channels):
            np.copyto(np.asarray(frame[plane]), pictures[n][:, :, plane])
        frame.props["number"] = n
        return frame

    return blank.std.ModifyFrame(clips=blank, selector=select)


def frames(photo: np.ndarray, count: int, height: int = 24, width: int = 32) -> list[np.ndarray]:
    """Parts of a photo, each a pixel further to the right."""
    return [photo[60 : 60 + height, 100 + n : 100 + n + width] for n in range(count)]


@pytest.mark.parametrize("bits", [8, 16])
def test_a_clip_is_what_infer_writes(
    bits: int, engine: tileforge.Engine, photo: np.ndarray, tmp_path: Path
) -> None:
    # 16 bits that are not 8 repeated, by a curve.
    pictures = frames(photo, 48) if bits == 8 else [
        np.rint((part / 255.0) ** 1.5 * 65535).astype(np.uint16) for part in frames(photo, 48)
    ]
    clip = clip_of(vs.RGB24 if bits == 8 else vs.RGB48, pictures)
    infer = [BESIDE / "runtime", "infer", "--engine", ENGINE]
    if bits == 8:
        small, large = tmp_path / "small", tmp_path / "large"
        small.mkdir()
        for n, picture in enumerate(pictures):
            Image.fromarray(picture).save(small / f"{n:02}.png")
        subprocess.run([*infer, "--input", small, "--output", large], check=True, capture_output=True)
        wanted = [np.asarray(Image.open(large / f"{n:02}.png")) for n in range(48)]
    else:
        # Pillow has no RGB of 16 bits.
        samples = b"".join(picture.astype("<u2").tobytes() for picture in pictures)
        line = [*infer, "--raw", "rgb48le:32x24", "--input", "-", "--output", "-"]
        done = subprocess.run(line, input=samples, check=True, capture_output=True)
        wanted = list(np.frombuffer(done.stdout, "<u2").reshape(48, 96, 128, 3))
    made = tileforge.vapoursynth.upscale(clip, engine)
    assert (made.num_frames, made.fps, made.format.id) == (48, clip.fps, clip.format.id)
    for n, frame in enumerate(made.frames()):
        assert frame.props["number"] == n
        assert np.array_equal(pixels(frame), wanted[n]), n


@pytest.mark.parametrize("form", [vs.RGB24, vs.RGB48, vs.RGBS, vs.GRAY8, vs.GRAY16, vs.GRAYS])
@pytest.mark.parametrize("in_flight", [1, 3, 16])
def test_every_format_is_what_the_engine_makes_of_its_frames(
    form: int, in_flight: int, engine: tileforge.Engine
) -> None:
    random = np.random.default_rng(form)
    channels = vs.core.get_video_format(form).num_planes
    kind = INTEGERS.get(form)
    shape = (20, 28, channels)
    pictures = [
        random.random(shape, np.float32) if kind is None else random.integers(0, np.iinfo(kind).max, shape, kind)
        for _ in range(7)
    ]
    made = tileforge.vapoursynth.upscale(clip_of(form, pictures), engine, in_flight=in_flight)
    assert made.num_frames == 7
    for picture, frame in zip(pictures, made.frames(), strict=True):
        assert np.array_equal(pixels(frame), engine.upscale(picture))


def test_bits_between_8_and_16_are_rounded_once(engine: tileforge.Engine) -> None:
    picture = np.random.default_rng(10).integers(0, 1024, (20, 28, 3), np.uint16)
    frame = tileforge.vapoursynth.upscale(clip_of(vs.RGB30, [picture]), engine).get_frame(0)
    # What 16 bits round before the network may grow in it: both sides have that.
    given = np.rint(picture * (65535 / 1023)) / 65535
    exact = engine.upscale(given.astype(np.float32)).clip(0, 1) * 1023
    # Half a level of 10 bits, and what 16 bits round behind the network.
    assert np.abs(pixels(frame) - exact).max() <= 0.5 + 1023 / 65535


@pytest.mark.parametrize("form", [vs.YUV444P16, vs.YUV444PS, vs.YUV420P8, vs.YUV422P10])
def test_yuv_keeps_its_matrix_range_and_place_of_chroma(
    form: int, engine: tileforge.Engine, photo: np.ndarray
) -> None:
    part = photo[60:108, 100:164]
    rgb = clip_of(vs.RGB24, [part])
    clip = rgb.resize.Bicubic(format=form, matrix_s="709", range_s="limited")
    chroma = clip.format.subsampling_w > 0
    if chroma:
        clip = clip.std.SetFrameProps(_ChromaLocation=1)
    made = tileforge.vapoursynth.upscale(clip, engine)
    said = made.get_frame(0).props
    assert (made.format.id, made.width, made.height) == (form, 256, 192)
    assert said["_Matrix"] == 1 and said["number"] == 0
    if clip.format.sample_type == vs.INTEGER:
        assert said["_Range"] == clip.get_frame(0).props["_Range"]
    if chroma:
        assert said["_ChromaLocation"] == 1
    # What the engine makes of the same pixels in RGB, which have less than 8 bits where chroma is halved.
    seen = pixels(made.resize.Bicubic(format=vs.RGBS).get_frame(0)).clip(0, 1)
    given = pixels(clip.resize.Bicubic(format=vs.RGBS).get_frame(0)).clip(0, 1)
    wanted = engine.upscale(given.astype(np.float32)).clip(0, 1)
    error = float(np.mean((seen - wanted) ** 2))
    assert -10 * np.log10(error) > (30 if chroma else 60)


def test_frames_are_in_flight_together(engine: tileforge.Engine, photo: np.ndarray) -> None:
    both = threading.Barrier(2)

    class Together:
        """An engine whose frames wait for one another."""

        info = engine.info

        def upscale(self, picture: np.ndarray) -> np.ndarray:
            both.wait(timeout=60)
            return engine.upscale(picture)

    clip = clip_of(vs.RGB24, frames(photo, 8))
    made = tileforge.vapoursynth._frames(clip, Together(), 4, 2)  # type: ignore[arg-type]
    assert sum(1 for _ in made.frames(prefetch=4)) == 8


def test_what_an_engine_does_not_take_is_said(engine: tileforge.Engine) -> None:
    blank = vs.core.std.BlankClip
    with pytest.raises(tileforge.InvalidInput, match='YUV420P8 do not say their matrix.*matrix="709"'):
        tileforge.vapoursynth.upscale(blank(format=vs.YUV420P8), engine)
    with pytest.raises(tileforge.InvalidInput, match="floats of 32 bits, found RGBH"):
        tileforge.vapoursynth.upscale(blank(format=vs.RGBH), engine)
    with pytest.raises(tileforge.InvalidInput, match="up to 16 bits, found Gray32"):
        tileforge.vapoursynth.upscale(blank(format=vs.GRAY32), engine)
    with pytest.raises(tileforge.InvalidInput, match="in_flight: expected 1 or more, found 0"):
        tileforge.vapoursynth.upscale(blank(format=vs.RGB24), engine, in_flight=0)
    sizes = vs.core.std.Splice([blank(format=vs.RGB24), blank(format=vs.RGB24, width=64)], mismatch=True)
    with pytest.raises(tileforge.InvalidInput, match="constant format and size"):
        tileforge.vapoursynth.upscale(sizes, engine)
    interlaced = blank(format=vs.RGB24, width=32, height=32, length=5).std.SetFieldBased(2)
    with pytest.raises(vs.Error, match="frame 4 is interlaced: deinterlace the clip first"):
        tileforge.vapoursynth.upscale(interlaced, engine, in_flight=2).get_frame(4)


def test_the_example_runs_in_vspipe(tmp_path: Path) -> None:
    script, large = REPOSITORY / "python/examples/vapoursynth_clip.vpy", tmp_path / "large.y4m"
    film = tmp_path / "film.mkv"
    source = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=24:duration=0.5", "-pix_fmt", "yuv420p"]
    tags = ["-colorspace", "bt709", "-color_range", "tv", "-c:v", "ffv1"]
    subprocess.run(["ffmpeg", "-loglevel", "error", *source, *tags, film], check=True)
    outputs = []
    for given in ([], ["--arg", f"film={film}"]):
        for number in ("0", "1"):
            line = [BESIDE / "vspipe", script, "-c", "y4m", "-o", number, "--arg", f"engine={ENGINE}", *given, large]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            header, _, rest = large.read_bytes().partition(b"\n")
            assert b"W256" in header and b"H192" in header
            # Frames of 12 bits a pixel.
            assert rest.count(b"FRAME\n") == 12 and len(rest) == 12 * (len(b"FRAME\n") + 256 * 192 * 12 // 8)
            outputs.append(rest)
    assert len(set(outputs)) == 4
