#!/usr/bin/env python3
"""Shows the nodes of python/comfyui in a real ComfyUI, through its API, on the CPU. It is not part of `make test`.

    VENV/bin/python scripts/try_comfyui.py COMFYUI [--xtask target/release/xtask] [--screenshot FILE.png]

COMFYUI is a folder of its sources, 0.8 or newer. VENV has its requirements, and the wheel of `make wheel` with the extra
`cpu`. Everything else is in a temporary folder: small engines of the tests' golden data, and the server's own folders.
With `--screenshot`, Chromium opens the example workflows, compares them with the example graphs, and takes a picture.
"""

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import comfyui_browser
import numpy as np
from comfyui_engines import PROGRAMS, ROOT, build_engines, run
from comfyui_server import Graph, Interrupted, Server, served
from PIL import Image

import tileforge

PACK = ROOT / "python/comfyui"
GRAPHS = ROOT / "python/examples"
# Those of `build_engines`.
ENGINES = ["compact-x4", "depth", "eraser", "restorer", "sd15", "vae"]
# Seconds after which an interrupt must have ended a request.
INTERRUPTED_WITHIN = 5.0


def check(is_right: bool, text: str) -> None:
    """Prints what holds, and ends where it does not."""
    if not is_right:
        raise AssertionError(text)
    print(f"ok: {text}", flush=True)


# Graphs ----------------------------------------------------------------------------------------------------------------


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    """A node of a graph."""
    return {"class_type": class_type, "inputs": inputs}


def load(name: str) -> dict[str, Any]:
    """The node that opens an engine."""
    return node("TileforgeLoadEngine", name=name)


def saved(source: str, name: str = "checked") -> dict[str, Any]:
    """The node that saves pictures of another node."""
    return node("SaveImage", images=[source, 0], filename_prefix=name)


def generation(**changes: Any) -> dict[str, Any]:
    """The node that makes pictures, with the engine of node 1."""
    inputs = {"engine": ["1", 0], "prompt": "a fox", "seed": 5, "steps": 4, "guidance": -1, "batch_size": 1}
    inputs |= {"scheduler": "the pipeline's", "width": 0, "height": 0}
    return node("TileforgeGenerate", **{**inputs, **changes})


def example(name: str, **changes: dict[str, Any]) -> Graph:
    """An example graph with other inputs of some nodes."""
    graph: Graph = json.loads((GRAPHS / f"comfyui_{name}.json").read_text())
    for number, inputs in changes.items():
        graph[number.removeprefix("n")]["inputs"].update(inputs)
    return graph


def picture(path: Path) -> "np.ndarray[Any, Any]":
    """The samples of a file."""
    with Image.open(path) as image:
        return np.asarray(image)


def difference(one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]") -> int:
    """The largest difference in levels; of another shape, 256."""
    if one.shape != other.shape:
        return 256
    return int(np.abs(one.astype(int) - other.astype(int)).max())


# Checks ----------------------------------------------------------------------------------------------------------------


async def check_upscale(server: Server, engines: Path) -> None:
    """Upscaling: files, alpha, batches, sizes."""
    inputs = server.base / "input"
    expected = server.base / "expected.png"

    def infer(source: Path) -> "np.ndarray[Any, Any]":
        run(PROGRAMS / "runtime", "infer", "--engine", engines / "compact-x4", "--input", source, "--output", expected)
        return picture(expected)

    made = await server.run(example("upscale"))
    check(difference(picture(made.pictures[0]), infer(inputs / "coffee.png")) == 0, "upscale: bytes of `runtime infer`")
    steps = made.progress["3"]
    in_order = [done for done, _ in steps] == sorted(done for done, _ in steps) and steps[-1][0] == steps[-1][1]
    check(in_order and len(steps) > 2, f"upscale: progress in {len(steps)} events up to {steps[-1]}")

    photo = picture(inputs / "coffee.png")[50:140, 100:220, :3]
    alpha = np.linspace(0, 255, photo[..., 0].size).astype(np.uint8).reshape(photo.shape[:2])
    Image.fromarray(np.dstack([photo, alpha])).save(inputs / "alpha.png")
    graph = {
        "1": node("LoadImage", image="alpha.png"),
        "2": load("compact-x4"),
        "3": node("TileforgeUpscale", engine=["2", 0], image=["1", 0], mask=["1", 1]),
        "4": node("JoinImageWithAlpha", image=["3", 0], alpha=["3", 1]),
        "5": saved("4"),
    }
    made = await server.run(graph)
    large = infer(inputs / "alpha.png")
    result = picture(made.pictures[0])
    check(difference(result[..., :3], large[..., :3]) == 0, "upscale: colours of a picture with alpha")
    check(difference(result[..., 3], large[..., 3]) <= 1, "upscale: its alpha, within what the server cuts off")
    # The same with pictures of four channels.
    graph["3"] = node("JoinImageWithAlpha", image=["1", 0], alpha=["1", 1])
    graph["4"] = node("TileforgeUpscale", engine=["2", 0], image=["3", 0])
    made = await server.run(graph)
    check(difference(picture(made.pictures[0]), large) <= 1, "upscale: pictures of four channels")
    graph["4"]["inputs"]["mask"] = ["1", 1]
    check("no mask, found both" in await server.refusal(graph), "upscale: alpha and a mask are refused")

    for width, height in ((1, 1), (1, 37), (130, 1)):
        Image.fromarray(photo[:height, :1].repeat(width, axis=1)).save(inputs / "small.png")
        made = await server.run(example("upscale", n1={"image": "small.png"}, n2={"name": "compact-x4"}))
        found = difference(picture(made.pictures[0]), infer(inputs / "small.png"))
        check(found == 0, f"upscale: a picture of {width}x{height}")

    frames = [Image.fromarray(np.roll(photo, number, 1)) for number in range(40)]
    frames[0].save(inputs / "frames.webp", save_all=True, append_images=frames[1:], lossless=True)
    made = await server.run(example("upscale", n1={"image": "frames.webp"}))
    engine = tileforge.open(engines / "compact-x4")
    equal = [
        difference(picture(path), np.asarray(engine.upscale(frame))) == 0
        for path, frame in zip(made.pictures, frames, strict=True)
    ]
    check(all(equal), f"upscale: a batch of {len(equal)} pictures, in its order")

    graph = example("upscale", n1={"image": "frames.webp"}, n3={"image": ["5", 0]})
    graph["5"] = node("RebatchImages", images=["1", 0], batch_size=15)
    again = await server.run(graph)
    pairs = zip(again.pictures, made.pictures, strict=True)
    check(all(difference(picture(one), picture(other)) == 0 for one, other in pairs), "upscale: a list of batches")

    graph = {
        "1": node("LoadImage", image="frames.webp"),
        "2": load("compact-x4"),
        "3": node("LoadImage", image="alpha.png"),
        "4": node("ImageScale", image=["1", 0], upscale_method="bilinear", width=33, height=21, crop="disabled"),
        "5": node("TileforgeUpscale", engine=["2", 0], image=["4", 0], mask=["3", 1]),
        "6": saved("5"),
    }
    check("expected the size of the picture, 33x21" in await server.refusal(graph), "upscale: a mask of another size")

    graph = {
        "1": node("LoadImage", image="alpha.png"),
        "2": node("TileforgeLoadEngineFromPath", path=str(engines / "compact-x4")),
        "3": node("TileforgeUseAsUpscaleModel", engine=["2", 0]),
        "4": node("ImageUpscaleWithModel", upscale_model=["3", 0], image=["1", 0]),
        "5": saved("4"),
    }
    Image.fromarray(photo).save(inputs / "photo.png")
    made = await server.run(graph)
    found = difference(picture(made.pictures[0]), infer(inputs / "photo.png"))
    check(found <= 1, "upscale model: the server's own node, within what it cuts off")
    graph["6"] = node("JoinImageWithAlpha", image=["1", 0], alpha=["1", 1])
    graph["4"]["inputs"]["image"] = ["6", 0]
    again = await server.run(graph)
    is_equal = difference(picture(again.pictures[0]), picture(made.pictures[0])) == 0
    check(is_equal, "upscale model: pictures of four channels, whose alpha is left out")
    graph["1"]["inputs"]["image"] = "coffee.png"
    graph["4"]["inputs"]["image"] = ["1", 0]
    made = await server.run(graph)
    result, large = picture(made.pictures[0]), infer(inputs / "coffee.png")
    error = float(np.abs(result.astype(float) - large).mean()) if result.shape == large.shape else 256.0
    check(error < 1, f"upscale model: a picture in the server's own tiles, {error:.2f} levels apart in the mean")
    check(made.progress["4"][-1][1] > 1, "upscale model: the server's own progress")


async def check_other_tasks(server: Server, engines: Path) -> None:
    """Depth, autoencoders, generation."""
    inputs = server.base / "input"
    graph = {
        "1": node("LoadImage", image="photo.png"),
        "2": load("depth"),
        "3": node("TileforgeDepth", engine=["2", 0], image=["1", 0]),
        "4": saved("3"),
    }
    made = await server.run(graph)
    values = tileforge.open(engines / "depth").depth(picture(inputs / "photo.png"))
    nearness = (values - values.min()) / (values.max() - values.min())
    found = difference(picture(made.pictures[0])[..., 0], (255 * nearness).astype(np.uint8))
    check(found <= 1, "depth: what `Engine.depth` gives, nearer in white")

    photo = picture(inputs / "photo.png")
    hole = np.zeros(photo.shape[:2], np.uint8)
    hole[10:30, 20:50] = 255
    Image.fromarray(np.dstack([photo[..., :3], 255 - hole])).save(inputs / "hole.png")
    graph["1"] = node("LoadImage", image="hole.png")
    graph["2"] = load("eraser")
    graph["3"] = node("TileforgeInpaint", engine=["2", 0], image=["1", 0], mask=["1", 1])
    made = await server.run(graph)
    filled = tileforge.open(engines / "eraser").inpaint(photo[..., :3].copy(), hole)
    check(difference(picture(made.pictures[0]), filled) == 0, "inpaint: bytes of `Engine.inpaint`")

    pipeline = tileforge.open(engines / "sd15")
    made = await server.run({"1": load("sd15"), "2": generation(), "3": saved("2")})
    line = ["--engine", engines / "sd15", "--prompt", "a fox", "--seed", 5, "--steps", 4]
    expected = server.base / "expected.png"
    run(PROGRAMS / "runtime", "generate", *line, "--output", expected)
    check(difference(picture(made.pictures[0]), picture(expected)) == 0, "generate: bytes of `runtime generate`")
    check(made.previews == 0, "generate: no previews where none are asked for")
    changes = {"preview_every": 1, "batch_size": 3, "steps": 20, "settings": '{"eta": 0.0}'}
    made = await server.run({"1": load("sd15"), "2": generation(**changes), "3": saved("2")})
    check(len(made.pictures) == 3, "generate: three pictures of one seed")
    check(made.previews > 0, f"generate: {made.previews} previews")
    several = pipeline.generate_several("a fox", 3, seed=5, steps=20)
    pairs = zip(made.pictures, several, strict=True)
    check(all(difference(picture(path), one) == 0 for path, one in pairs), "generate: those of `generate_several`")

    start, mask = several[0], np.zeros(several[0].shape[:2], np.uint8)
    mask[:, : mask.shape[1] // 2] = 255
    Image.fromarray(np.dstack([start, 255 - mask])).save(inputs / "masked.png")
    graph = {
        "1": load("sd15"),
        "2": generation(image=["4", 0], mask=["4", 1], strength=0.8),
        "3": saved("2"),
        "4": node("LoadImage", image="masked.png"),
    }
    made = await server.run(graph)
    masked = pipeline.generate("a fox", seed=5, steps=4, image=start, mask=mask, strength=0.8)
    check(difference(picture(made.pictures[0]), masked) <= 1, "generate: a masked part of a picture")
    del graph["2"]["inputs"]["image"]
    check("found a mask alone" in await server.refusal(graph), "generate: a mask without an image")

    height, width = start.shape[0] - 1, start.shape[1] - 3
    Image.fromarray(start[:height, :width]).save(inputs / "odd.png")
    graph = {
        "1": node("LoadImage", image="odd.png"),
        "2": load("sd15"),
        "3": node("TileforgeEncode", engine=["2", 0], image=["1", 0]),
        "4": node("TileforgeDecode", engine=["2", 0], latent=["3", 0]),
        "5": saved("4"),
    }
    made = await server.run(graph)
    expected_ = pipeline.decode(pipeline.encode(start[:height, :width].copy()), size=(width, height))
    assert not isinstance(expected_, list)
    check(difference(picture(made.pictures[0]), expected_) <= 1, f"encode and decode: a picture of {width}x{height}")
    # A latent that another node changed is not cut.
    graph["6"] = node("LatentUpscaleBy", samples=["3", 0], upscale_method="nearest-exact", scale_by=2.0)
    graph["4"]["inputs"]["latent"] = ["6", 0]
    made = await server.run(graph)
    larger = picture(made.pictures[0]).shape
    check(larger == (2 * start.shape[0], 2 * start.shape[1], 3), "decode: a latent that was enlarged")
    graph["3"] = node("EmptyLatentImage", width=64, height=64, batch_size=1)
    graph["4"]["inputs"]["latent"] = ["3", 0]
    await server.run(graph)
    check(True, "decode: a latent of the server's own node")

    frames = [np.roll(picture(inputs / "photo.png")[:30, :45], number, 0) for number in range(7)]
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(inputs / "clip.webp", save_all=True, append_images=images[1:], lossless=True)
    graph["1"]["inputs"]["image"] = "clip.webp"
    graph["2"] = load("vae")
    graph["3"] = node("TileforgeEncode", engine=["2", 0], image=["1", 0])
    made = await server.run(graph)
    autoencoder = tileforge.open(engines / "vae")
    clip = autoencoder.decode(autoencoder.encode(frames), size=(45, 30), frames=7)
    pairs = zip(made.pictures, clip, strict=True)
    check(all(difference(picture(path), frame) <= 1 for path, frame in pairs), "encode and decode: a clip of 7 frames")
    graph = {
        "1": node("LoadImage", image="clip.webp"),
        "2": load("restorer"),
        "3": node("TileforgeRestore", engine=["2", 0], image=["1", 0], seed=5),
        "4": saved("3"),
    }
    made = await server.run(graph)
    film = tileforge.open(engines / "restorer").restore(frames, seed=5)
    pairs = zip(made.pictures, film, strict=True)
    is_equal = all(difference(picture(path), frame) == 0 for path, frame in pairs)
    check(is_equal, "restore: the frames of `Engine.restore`")
    check(made.progress["3"][-1] == (7, 7), f"restore: progress up to {made.progress['3'][-1]}")

    graph = {
        "2": load("vae"),
        "3": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "4": node("TileforgeDecode", engine=["2", 0], latent=["3", 0]),
        "5": saved("4"),
    }
    check("frames, height, width" in await server.refusal(graph), "decode: a latent of pictures for an engine of clips")


async def check_refusals(server: Server, engines: Path) -> None:
    """Engines that are not for a node, that are not there, and that go away."""
    tasks = {
        "TileforgeUpscale": ("compact-x4", {"image": ["1", 0]}),
        "TileforgeInpaint": ("eraser", {"image": ["1", 0], "mask": ["1", 1]}),
        "TileforgeRestore": ("restorer", {"image": ["1", 0], "seed": 5}),
        "TileforgeUseAsUpscaleModel": ("compact-x4", {}),
        "TileforgeDepth": ("depth", {"image": ["1", 0]}),
        "TileforgeEncode": ("sd15 vae restorer", {"image": ["1", 0]}),
        "TileforgeDecode": ("sd15 vae restorer", {"latent": ["2", 0]}),
        "TileforgeGenerate": ("sd15", generation()["inputs"]),
    }
    count = 0
    for name, (right, inputs) in tasks.items():
        for engine in ENGINES:
            if engine in right.split():
                continue
            tested = node(name, **{**inputs, "engine": ["3", 0]})
            graph = {
                "1": node("LoadImage", image="photo.png"),
                "2": node("EmptyLatentImage", width=64, height=64, batch_size=1),
                "3": load(engine),
                "4": tested,
                "5": node("PreviewAny", source=["4", 0]),
            }
            said = await server.refusal(graph)
            assert "InvalidInput: expected a" in said and "found" in said and engine.split("-")[0] in said, said
            count += 1
    check(True, f"{count} pairs of a node and an engine for another task are refused, with both in the text")

    graph = example("upscale", n1={"image": "photo.png"})
    said = await server.refusal(example("upscale", n2={"name": "../tileforge/depth"}))
    check("not in list" in said, "load: a name that is not in the list")
    by_path = {"1": node("TileforgeLoadEngineFromPath", path="/nowhere"), "2": node("PreviewAny", source=["1", 1])}
    check("/nowhere" in await server.refusal(by_path), "load: a path with nothing there")
    by_path["1"]["inputs"] = {"path": str(engines / "depth"), "verify_key": str(ROOT / "README.md")}
    check("InvalidInput" in await server.refusal(by_path), "load: a key that is none")
    by_path["1"]["inputs"] = {"path": str(engines / "depth"), "provider": "cuda"}
    await server.run(by_path)
    check(True, "load: by path")
    run(PROGRAMS / "engine-builder", "pack", engines / "depth", "-o", engines / "shipped.tar")
    await server.run({"1": load("shipped.tar"), "2": node("PreviewAny", source=["1", 1])})
    check(True, "load: an archive")

    await server.run(graph)
    aside = server.base / "aside"
    (engines / "compact-x4").rename(aside)
    check("not in list" in await server.refusal(graph), "an engine that goes away is missed by the next graph")
    by_path["1"]["inputs"] = {"path": str(engines / "compact-x4")}
    check("compact-x4" in await server.refusal(by_path), "the same by path")
    aside.rename(engines / "compact-x4")
    # Built anew: opened again.
    os.utime(engines / "compact-x4/manifest.json")
    graph["4"]["inputs"]["filename_prefix"] = "again"
    await server.run(graph)
    check(True, "an engine that comes back is opened again")


async def check_interrupts(server: Server) -> None:
    """The button ends what runs, and the next graph runs."""
    inputs = server.base / "input"
    photo = Image.fromarray(picture(inputs / "photo.png"))
    photo.resize((2500, 2000)).save(inputs / "large.png")
    long_generation = {"1": load("sd15"), "2": generation(steps=900, batch_size=64), "3": saved("2")}
    model = {
        "1": node("LoadImage", image="large.png"),
        "2": load("compact-x4"),
        "6": node("TileforgeUseAsUpscaleModel", engine=["2", 0]),
        "3": node("ImageUpscaleWithModel", upscale_model=["6", 0], image=["1", 0]),
        "4": saved("3"),
    }
    cases = [
        ("generate", long_generation, "2"),
        ("upscale", example("upscale", n1={"image": "large.png"}), "3"),
        ("upscale model", model, "3"),
    ]
    for name, graph, at in cases:
        try:
            await server.run(graph, interrupt_at=at)
        except Interrupted as error:
            seconds = error.seconds
        else:
            raise AssertionError(f"{name}: not interrupted")
        check(seconds < INTERRUPTED_WITHIN, f"interrupt: {name} ended within {seconds:.1f} s")
        begun = time.monotonic()
        again = {"1": load("sd15"), "2": generation(seed=int(begun * 1000)), "3": saved("2")}
        await server.run(again)
        check(True, f"interrupt: the next graph took {time.monotonic() - begun:.1f} s")


async def show(arguments: argparse.Namespace) -> None:
    """Everything."""
    with tempfile.TemporaryDirectory(prefix="tileforge-comfyui-") as folder:
        base = Path(folder) / "base"
        engines = base / "models/tileforge"
        engines.mkdir(parents=True)
        # For the programs and the server: nothing is left behind.
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        build_engines(engines, arguments.xtask)
        async with served(arguments.comfyui.resolve(), PACK, base) as server:
            shutil.copy(ROOT / "tests/images/coffee.png", base / "input")
            listed = await server.get("/object_info/TileforgeLoadEngine")
            names = listed["TileforgeLoadEngine"]["input"]["required"]["name"][1]["options"]
            check(names == ENGINES, f"engines in the list: {', '.join(names)}")
            nodes = [name for name in await server.get("/object_info") if name.startswith("Tileforge")]
            check(len(nodes) == 10, f"{len(nodes)} nodes")
            await check_upscale(server, engines)
            await check_other_tasks(server, engines)
            await check_refusals(server, engines)
            await check_interrupts(server)
            if arguments.screenshot is not None:
                await comfyui_browser.check_workflows(server, PACK, GRAPHS, arguments.screenshot)
    print("all of it holds")


def main() -> None:
    """Parses the arguments."""
    parser = argparse.ArgumentParser(description="Show the nodes in a real ComfyUI, on the CPU.")
    parser.add_argument("comfyui", type=Path, help="the folder of ComfyUI's sources")
    parser.add_argument("--xtask", type=Path, default=ROOT / "target/release/xtask", help="our developers' program")
    parser.add_argument("--screenshot", type=Path, help="where the picture of the example in Chromium goes")
    asyncio.run(show(parser.parse_args()))


if __name__ == "__main__":
    main()
