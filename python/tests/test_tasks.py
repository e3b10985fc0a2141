"""Every task gives what the programs give."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tileforge

Run = Callable[..., str]


def saved(path: Path, array: np.ndarray) -> Path:
    Image.fromarray(array).save(path)
    return path


def read(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def latent_in(path: Path) -> np.ndarray:
    """The tensor of a safetensors file with one, without the axis of the batch."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    begin, end = header["latent"]["data_offsets"]
    values = np.frombuffer(content[8 + length :][begin:end], "<f4")
    return values.reshape(header["latent"]["shape"])[0]


@pytest.mark.parametrize("channels", [None, 1, 2, 3, 4])
def test_pictures_equal_those_of_the_program(
    channels: int | None, upscaler: tileforge.Engine, engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path
) -> None:
    alpha = np.linspace(0, 255, photo[..., 0].size).astype(np.uint8).reshape(photo.shape[:2])
    grey = photo[..., 1]
    pictures = {
        None: grey,
        1: grey[..., None],
        2: np.dstack([grey, alpha]),
        3: photo,
        4: np.dstack([photo, alpha]),
    }
    picture = pictures[channels]
    given = saved(tmp_path / "in.png", picture if channels != 1 else grey)
    runtime("infer", "--engine", engines / "upscale", "--input", given, "--output", tmp_path / "out.png")
    expected = read(tmp_path / "out.png")
    large = upscaler.upscale(picture)
    assert large.dtype == np.uint8 and large.shape == (360, 480, *picture.shape[2:])
    assert np.array_equal(large.reshape(expected.shape), expected)
    # Any strides.
    mirrored = np.asfortranarray(picture)[::-1, ::-1]
    assert np.array_equal(upscaler.upscale(mirrored[::-1, ::-1]), large)
    wide = np.repeat(picture, 2, axis=1)
    assert np.array_equal(upscaler.upscale(wide[:, ::2]), large)
    # And images of Pillow.
    if channels != 1:
        image = upscaler.upscale(Image.fromarray(picture))
        assert isinstance(image, Image.Image) and np.array_equal(np.asarray(image), expected)


def test_deep_pictures_stay_deep(
    upscaler: tileforge.Engine, engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path
) -> None:
    grey = photo[..., 0].astype(np.uint16) * 257
    given = saved(tmp_path / "in.png", grey)
    runtime("infer", "--engine", engines / "upscale", "--input", given, "--output", tmp_path / "out.png")
    large = upscaler.upscale(grey)
    assert large.dtype == np.uint16 and np.array_equal(large, read(tmp_path / "out.png"))
    assert np.array_equal(upscaler.upscale(grey.astype(">u2")), large)
    image = upscaler.upscale(Image.fromarray(grey))
    assert image.mode == "I;16" and np.array_equal(np.asarray(image), large)
    floats = upscaler.upscale(grey.astype(np.float32) / 65535)
    assert floats.dtype == np.float32 and np.abs(floats - large / 65535).max() < 1e-4


def test_depth(engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path) -> None:
    given = saved(tmp_path / "in.png", photo)
    runtime("infer", "--engine", engines / "depth", "--input", given, "--output", tmp_path / "out.npy")
    engine = tileforge.open(engines / "depth")
    depth = engine.depth(photo)
    assert depth.dtype == np.float32 and np.array_equal(depth, np.load(tmp_path / "out.npy"))
    assert (engine.info.task, engine.info.depth) == ("depth", "relative_inverse")
    assert np.array_equal(engine.submit_depth(Image.fromarray(photo)).result(), depth)
    with pytest.raises(tileforge.InvalidInput, match="map"):
        engine.depth(photo, sensor=np.ones(photo.shape[:2], np.float32))


def test_depth_with_the_map_of_a_sensor(engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path) -> None:
    sensor = np.linspace(0.5, 4, photo[..., 0].size, dtype=np.float32).reshape(photo.shape[:2])
    sensor[:20] = 0
    np.save(tmp_path / "map.npy", sensor)
    given = saved(tmp_path / "in.png", photo)
    command = ["infer", "--engine", engines / "depth_map", "--input", given, "--depth", tmp_path / "map.npy"]
    runtime(*command, "--output", tmp_path / "out.npy")
    engine = tileforge.open(engines / "depth_map")
    assert np.array_equal(engine.depth(photo, sensor=sensor), np.load(tmp_path / "out.npy"))
    assert engine.info.depth == "metres"
    with pytest.raises(tileforge.InvalidInput, match="map"):
        engine.depth(photo)
    for wrong in [sensor[:-1], sensor[..., None], sensor.astype(np.float64), sensor * np.nan, sensor[:0]]:
        with pytest.raises(tileforge.InvalidInput):
            engine.depth(photo, sensor=wrong)


def test_generate(engines: Path, runtime: Run, tmp_path: Path) -> None:
    engine = tileforge.open(engines / "sd")
    line = ["generate", "--engine", engines / "sd", "--prompt", "a fox", "--seed", 5, "--steps", 4]
    runtime(*line, "--output", tmp_path / "out.png")
    steps: list[tileforge.Step] = []
    made = engine.generate("a fox", seed=5, steps=4, on_step=steps.append)
    assert np.array_equal(made, read(tmp_path / "out.png"))
    # This scheduler evaluates the network once more than it has steps.
    assert [(step.done, step.total) for step in steps] == [(number, 5) for number in range(1, 6)]
    assert all(step.picture is None for step in steps)
    steps.clear()
    assert np.array_equal(engine.generate("a fox", seed=5, steps=4, preview_every=2, on_step=steps.append), made)
    assert [step.done for step in steps if step.picture is not None] == [2, 4]
    assert steps[1].picture is not None and steps[1].picture.shape == made.shape
    assert engine.info.task is None and made.shape[1::-1] in engine.info.sizes and "unet" in engine.info.parts
    several = engine.generate_several("a fox", 2, seed=5, steps=4)
    assert len(several) == 2 and np.array_equal(several[0], made)

    given = saved(tmp_path / "in.png", made)
    runtime(*line, "--image", given, "--strength", 0.5, "--output", tmp_path / "from.png")
    again = engine.generate("a fox", seed=5, steps=4, image=made, strength=0.5)
    assert np.array_equal(again, read(tmp_path / "from.png"))
    mask = np.zeros(made.shape[:2], np.uint8)
    mask[:, : made.shape[1] // 2] = 255
    runtime(
        *line, "--image", given, "--mask", saved(tmp_path / "mask.png", mask), "--output", tmp_path / "masked.png"
    )
    masked = engine.submit_generate("a fox", seed=5, steps=4, image=Image.fromarray(made), mask=mask).result()
    assert np.array_equal(masked[0], read(tmp_path / "masked.png"))

    for wrong in [
        {"steps": 0},
        {"guidance": -1.0},
        {"guidance": float("nan")},
        {"size": (1, 1)},
        {"size": (-1, 8)},
        {"scheduler": "none such"},
        {"seed": -1},
        {"seed": 1 << 64},
        {"settings": {"colour": "red"}},
        {"settings": {"eta": object()}},
        {"settings": {"steps": 3}, "steps": 3},
        {"mask": mask},
        {"image": made, "mask": mask[1:]},
        {"strength": 2.0},
        {"preview_every": 0},
    ]:
        with pytest.raises(tileforge.InvalidInput):
            engine.generate("a fox", **{"steps": 2, **wrong})  # type: ignore[arg-type]
    with pytest.raises(tileforge.InvalidInput, match="several"):
        engine.generate("a fox", settings={"count": 2})


def test_latents_of_pictures(engines: Path, runtime: Run, tmp_path: Path) -> None:
    engine = tileforge.open(engines / "sd")
    made = engine.generate("a fox", steps=2)
    latent = engine.encode(made)
    assert latent.dtype == np.float32 and latent.ndim == 3
    given = saved(tmp_path / "in.png", made)
    file = tmp_path / "latent.safetensors"
    runtime("encode", "--engine", engines / "sd", "--input", given, "--output", file)
    assert np.array_equal(latent_in(file), latent)
    runtime("decode", "--engine", engines / "sd", "--input", file, "--output", tmp_path / "back.png")
    back = engine.decode(latent)
    assert isinstance(back, np.ndarray) and np.array_equal(back, read(tmp_path / "back.png"))
    smaller = engine.decode(latent, size=(made.shape[1] - 3, made.shape[0] - 1))
    assert isinstance(smaller, np.ndarray) and np.array_equal(smaller, back[:-1, :-3])
    for wrong in [latent[0], latent[None], latent[:-1], latent * np.inf, latent.astype(np.float16), latent[:, :0]]:
        with pytest.raises(tileforge.InvalidInput):
            engine.decode(wrong)
    for size in [(0, 8), (-1, 8)]:
        with pytest.raises(tileforge.InvalidInput):
            engine.decode(latent, size=size)


def test_latents_of_clips(engines: Path, runtime: Run, tmp_path: Path) -> None:
    encoder, decoder = tileforge.open(engines / "encoder"), tileforge.open(engines / "decoder")
    shape = encoder.ports()[0][0][2]
    frames, height, width = (length or 1 for length in shape[2:])
    random = np.random.default_rng(1)
    clip = [random.integers(0, 256, (height, width, 3), np.uint8) for _ in range(frames)]
    latent = encoder.encode(clip)
    assert latent.ndim == 4
    assert np.array_equal(encoder.submit_encode(tuple(clip)).result(), latent)
    made = decoder.decode(latent)
    assert isinstance(made, list) and all(frame.shape[2] == 3 for frame in made)
    (tmp_path / "clip.rgb").write_bytes(b"".join(frame.tobytes() for frame in clip))
    file = tmp_path / "latent.safetensors"
    line = ["encode", "--engine", engines / "encoder", "--input", tmp_path / "clip.rgb", "--output", file]
    runtime(*line, "--raw", f"rgb24:{width}x{height}")
    assert np.array_equal(latent_in(file), latent)
    runtime("decode", "--engine", engines / "decoder", "--input", file, "--output", tmp_path / "frames")
    expected = [read(path) for path in sorted((tmp_path / "frames").glob("*.png"))]
    assert all(np.array_equal(one, two) for one, two in zip(made, expected, strict=True))
    assert all(np.array_equal(one, two) for one, two in zip(made, decoder.submit_decode(latent).result(), strict=True))
    with pytest.raises(tileforge.InvalidInput):
        encoder.encode([])
    with pytest.raises(tileforge.InvalidInput):
        encoder.encode([clip[0], clip[0][1:]])


def test_filled_in_pictures_equal_those_of_the_program(
    engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path
) -> None:
    engine = tileforge.open(engines / "inpaint")
    assert engine.info.task == "inpaint"
    picture, mask = photo[:70, :61], np.zeros((70, 61), np.uint8)
    mask[20:40, 10:30] = 255
    line = ["infer", "--engine", engines / "inpaint", "--input", saved(tmp_path / "in.png", picture)]
    runtime(*line, "--mask", saved(tmp_path / "mask.png", mask), "--output", tmp_path / "out.png")
    made = engine.inpaint(picture, mask)
    assert made.dtype == np.uint8 and np.array_equal(made, read(tmp_path / "out.png"))
    kept = mask == 0
    assert np.array_equal(made[kept], picture[kept]) and not np.array_equal(made, picture)
    assert np.array_equal(engine.submit_inpaint(picture, mask).result(timeout=60), made)
    image = engine.inpaint(Image.fromarray(picture), Image.fromarray(mask))
    assert isinstance(image, Image.Image) and np.array_equal(np.asarray(image), made)
    # Other samples, and alpha, stay as they are outside the mask, and are not rounded.
    floats = np.dstack([picture.astype(np.float32) / 255, np.full(mask.shape, 0.3, np.float32)])
    filled = engine.inpaint(floats, mask.astype(np.float32) / 255)
    assert filled.dtype == np.float32 and np.array_equal(filled[kept], floats[kept])
    assert np.array_equal(filled[..., 3], floats[..., 3])
    assert np.array_equal(engine.inpaint(picture, np.zeros_like(mask)), picture)
    for wrong in [mask[:-1], mask.T, None, "mask", mask.astype(np.int64)]:
        with pytest.raises(tileforge.InvalidInput):
            engine.inpaint(picture, wrong)  # type: ignore[arg-type]
    with pytest.raises(tileforge.InvalidInput):
        engine.upscale(picture)
    with pytest.raises(tileforge.InvalidInput):
        tileforge.open(engines / "upscale").inpaint(picture, mask)


def test_restored_pictures_and_films_equal_those_of_the_program(
    engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path
) -> None:
    engine = tileforge.open(engines / "restore")
    assert engine.info.task == "restore" and "transformer" in engine.info.parts
    picture = photo[:45, :61]
    line = ["infer", "--engine", engines / "restore"]
    command = [*line, "--input", saved(tmp_path / "in.png", picture), "--output", tmp_path / "out.png"]
    runtime(*command)
    made = engine.restore(picture)
    # The largest size of the engine in these proportions, without an odd row or column.
    assert made.dtype == np.uint8 and made.shape == (32, 42, 3) and np.array_equal(made, read(tmp_path / "out.png"))
    runtime(*command, "--size", "48x32", "--seed", 7, "--colour", "wavelet")
    other = engine.restore(picture, size=(48, 32), seed=7, colour="wavelet")
    assert other.shape == (32, 48, 3) and np.array_equal(other, read(tmp_path / "out.png"))
    # Kinds are kept, but for transparency.
    image = engine.restore(Image.fromarray(picture))
    assert isinstance(image, Image.Image) and np.array_equal(np.asarray(image), made)
    opaque = np.dstack([picture, np.full(picture.shape[:2], 9, np.uint8)])
    assert np.array_equal(engine.restore(opaque), made)
    grey = engine.restore(picture[..., 0].astype(np.float32) / 255)
    assert grey.dtype == np.float32 and grey.shape == (32, 42)
    assert np.array_equal(engine.submit_restore(picture).result(timeout=60), made)

    film = np.stack([np.roll(photo[:40, :60], 2 * number, 1) for number in range(9)])
    (tmp_path / "film.rgb").write_bytes(film.tobytes())
    command = [*line, "--raw", "rgb24:60x40", "--input", tmp_path / "film.rgb", "--output", tmp_path / "out.rgb"]
    runtime(*command, "--size", 30, "--frame-overlap", 1, "--seed", (1 << 64) - 1)
    seen: list[tuple[int, int]] = []
    settings = {"size": 30, "frame_overlap": 1, "seed": (1 << 64) - 1}
    made = engine.restore(film, on_progress=lambda *at: seen.append(at), **settings)  # type: ignore[call-overload]
    assert made.shape == (9, 30, 44, 3) and made.tobytes() == (tmp_path / "out.rgb").read_bytes()
    assert seen[-1] == (9, 9) and all(total == 9 for _, total in seen)
    frames = engine.restore(list(film), **settings)  # type: ignore[call-overload]
    assert isinstance(frames, list) and np.array_equal(np.stack(frames), made)

    noise = np.random.default_rng(1).standard_normal((4, 2, 4, 6), np.float32)
    noisy = engine.restore(film[:5], noise=noise)
    assert noisy.shape == (5, 32, 48, 3) and not np.array_equal(noisy, engine.restore(film[:5]))
    for wrong in [
        {"size": 0},
        {"size": 33},
        {"size": -1},
        {"size": (48, 0)},
        {"size": (1 << 32, 32)},
        {"size": (1 << 31, 1 << 31)},
        {"size": (48,)},
        {"size": 1 << 40},
        {"size": 32.5},
        {"seed": -1},
        {"seed": 1 << 64},
        {"seed": 1, "noise": noise},
        {"noise": noise[:, :1]},
        {"noise": noise[:3]},
        {"noise": noise[..., :5]},
        {"noise": noise[0]},
        {"noise": noise[None]},
        {"noise": noise * np.nan},
        {"noise": noise.astype(np.float64)},
        {"colour": "sepia"},
        {"frame_overlap": 5},
        {"frame_overlap": -1},
        {"frame_overlap": 1 << 64},
    ]:
        with pytest.raises(tileforge.InvalidInput):
            engine.restore(film[:5], **wrong)  # type: ignore[call-overload]
    for frames in [[], film[:0], film[..., :0], [film[0], film[0][1:]], film[None], [None], None]:
        with pytest.raises(tileforge.InvalidInput):
            engine.restore(frames)  # type: ignore[type-var]
    for name, expected in [("upscale", "restoration pipeline"), ("sd", "transformer that restores")]:
        with pytest.raises(tileforge.InvalidInput, match=expected):
            tileforge.open(engines / name).restore(picture)
    with pytest.raises(tileforge.InvalidInput):
        engine.generate("a fox")
    with pytest.raises(tileforge.InvalidInput):
        engine.upscale(picture)


def test_a_restoration_ends_when_it_is_stopped(engines: Path, photo: np.ndarray) -> None:
    engine = tileforge.open(engines / "restore")
    film = np.stack([photo[:40, :60]] * 60)

    def stop(done: int, total: int) -> None:
        if done > 0:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        engine.restore(film, on_progress=stop)
    future = engine.submit_restore(film)
    assert future.cancel() and future.cancelled()
    with pytest.raises(tileforge.DeadlineExceeded):
        engine.restore(film, timeout=0.01)
    # The next one has its turn.
    assert engine.restore(film[0]).shape == (32, 48, 3)


def test_tensors(engines: Path, photo: np.ndarray, runtime: Run, tmp_path: Path) -> None:
    engine = tileforge.open(engines / "upscale")
    image = (photo[:24, :24].astype(np.float32) / 255).transpose(2, 0, 1)[None]
    np.savez(tmp_path / "in.npz", image=image)
    line = ["run", "--engine", engines / "upscale", "--input", tmp_path / "in.npz"]
    runtime(*line, "--output", tmp_path / "out.npz")
    made = engine.run({"image": image})
    with np.load(tmp_path / "out.npz") as expected:
        assert np.array_equal(made["upscaled"], expected["upscaled"])
    assert np.from_dlpack(made["upscaled"]).shape == (1, 3, 96, 96)

    class Tensor:
        """What other libraries have."""

        def __dlpack__(self, **options: object) -> object:
            return np.ascontiguousarray(image).__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert np.array_equal(engine.run({"image": Tensor()})["upscaled"], made["upscaled"])
    inputs, outputs = engine.ports()
    assert inputs[0][:2] == ("image", "f32") and outputs[0][0] == "upscaled"
    for wrong in [
        {},
        {"other": image},
        {"image": image, "other": image},
        {"image": image[0]},
        {"image": image[:, :2]},
        {"image": image.astype(np.float64)},
        {"image": image.astype(str)},
        {"image": None},
        {"image": image[:0]},
        {1: image},
        [image],
    ]:
        with pytest.raises(tileforge.InvalidInput):
            engine.run(wrong)  # type: ignore[arg-type]


def test_what_an_engine_is(upscaler: tileforge.Engine, engines: Path) -> None:
    info = upscaler.info
    assert (info.task, info.scale, info.precision, info.provider) == ("upscale", 4, "fp32", "cpu")
    assert info.architecture == "SRVGGNetCompact" and info.sizes and "fits cpu" in info.verdict
    manifest = json.loads((engines / "upscale/manifest.json").read_text())
    # Figures may differ in their last digit: two readers of numbers have seen them.
    assert {**info.manifest, "gates": None} == {**manifest, "gates": None}
    assert "upscale" in repr(upscaler)
    with pytest.raises(tileforge.InvalidInput, match="upscale"):
        upscaler.generate("a fox")


def test_frames(engines: Path, upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    frames = [np.roll(photo[:32, :32], number, 1) for number in range(5)]
    large = list(upscaler.frames(frames))
    assert all(np.array_equal(one, upscaler.upscale(frame)) for one, frame in zip(large, frames, strict=True))
    depth = tileforge.open(engines / "depth")
    assert [one.shape for one in depth.frames(frames, ahead=0)] == [(32, 32)] * 5

    player = tileforge.open(engines / "realtime")
    played = list(player.frames(frames))
    assert len(played) == 5 and all(frame.shape == (32, 32, 3) for frame in played)
    assert all(np.array_equal(one, two) for one, two in zip(played, player.frames(iter(frames), ahead=0), strict=True))
    # Each depends on the one before.
    assert not np.array_equal(next(player.frames(frames[1:])), played[1])

    taken = []

    def source() -> object:
        for frame in frames * 100:
            taken.append(frame)
            yield frame

    for engine in (player, upscaler):
        taken.clear()
        stream = engine.frames(source(), ahead=1)
        assert not taken
        next(stream)
        assert len(taken) == 2
        stream.close()

        def failing() -> object:
            yield frames[0]
            raise KeyError("the camera")

        with pytest.raises(KeyError, match="camera"):
            list(engine.frames(failing()))
        with pytest.raises(tileforge.InvalidInput):
            list(engine.frames([frames[0], "no frame"]))
        assert list(engine.frames([])) == [] if engine is upscaler else True
        with pytest.raises(tileforge.InvalidInput):
            engine.frames(frames, ahead=-1)
    assert len(list(player.frames(frames))) == 5


def test_export_and_build(tmp_path: Path, photo: np.ndarray, upscaler: tileforge.Engine) -> None:
    from conftest import REPOSITORY

    model = REPOSITORY / "models/compact-x4.safetensors"
    [graph] = tileforge.export(model, tmp_path / "compact.onnx", weights="copy")
    assert graph.stat().st_size > 1000
    profile = REPOSITORY / "tests/profiles/small-tiles.yaml"
    directory = tileforge.build(model, profile=profile, output=tmp_path / "engine")
    assert np.array_equal(tileforge.open(directory).upscale(photo), upscaler.upscale(photo))
    with pytest.raises(tileforge.InvalidInput, match="weights"):
        tileforge.export(model, tmp_path / "other.onnx", weights="nowhere")
    with pytest.raises(tileforge.Failed, match="none"):
        tileforge.export(tmp_path / "none.safetensors", tmp_path / "other.onnx")
    with pytest.raises(tileforge.TileforgeError, match="none"):
        tileforge.build(model, profile="none", output=tmp_path / "other")
