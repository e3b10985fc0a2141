"""The nodes of python/comfyui with small stand-ins for the modules of ComfyUI and PyTorch, which are not here.

That the real ones behave like these is shown by scripts/try_comfyui.py.
"""

import importlib.util
import inspect
import shutil
import sys
import threading
import time
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY

import tileforge

PACK = REPOSITORY / "python/comfyui"


class Interrupted(Exception):
    """What the server raises."""


class Tensor:
    """A tensor of PyTorch, as far as the nodes use it."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, np.float32)
        self.shape, self.ndim = self.values.shape, self.values.ndim

    def numpy(self) -> np.ndarray:
        return self.values

    def detach(self) -> "Tensor":
        return self

    cpu = float = detach

    def to(self, _: object) -> "Tensor":
        return self


class Described:
    """Anything of the schema's module: sockets, schemas, types of them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.id = arguments[0] if arguments else None
        self.__dict__.update(named)

    def __class_getitem__(cls, _: object) -> Any:
        return cls


class Types:
    """`comfy_api.latest.io`: each name is a type with sockets."""

    ComfyNode = type("ComfyNode", (), {})
    Schema = Input = Output = Described

    @staticmethod
    def NodeOutput(*values: Any) -> tuple[Any, ...]:  # the server's name
        return values

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(Input=Described, Output=Described)

    def Custom(self, name: str) -> Any:  # the server's name
        return types.SimpleNamespace(Input=Described, Output=Described)


class Server:
    """What the stand-ins have in common with the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_interrupted = False
        self.progress: list[tuple[int, int]] = []
        self.previews = 0

    def look(self) -> None:
        if self.is_interrupted:
            self.is_interrupted = False
            raise Interrupted

    def modules(self) -> dict[str, types.ModuleType]:
        server = self

        class ProgressBar:
            def __init__(self, total: int) -> None:
                server.progress.clear()

            def update_absolute(self, value: int, total: int, preview: object) -> None:
                server.progress.append((value, total))
                server.previews += preview is not None

        class Module:
            def __call__(self, *given: Any) -> Any:
                return self.forward(*given)  # type: ignore[attr-defined]

        def module(name: str, **members: Any) -> types.ModuleType:
            made = types.ModuleType(name)
            made.__dict__.update(members)
            return made

        management = module(
            "comfy.model_management",
            throw_exception_if_processing_interrupted=self.look,
            intermediate_device=lambda: "cpu",
        )
        utils = module("comfy.utils", ProgressBar=ProgressBar)
        nn = module("torch.nn", Module=Module)
        latest = module("comfy_api.latest", io=Types(), ComfyExtension=type("ComfyExtension", (), {}))
        paths = module(
            "folder_paths",
            models_dir=str(self.folder.parent),
            add_model_folder_path=lambda key, path: None,
            get_folder_paths=lambda key: [str(self.folder)],
        )
        made = [management, utils, nn, latest, paths]
        made += [module("comfy", model_management=management, utils=utils), module("comfy_api", latest=latest)]
        made += [module("torch", nn=nn, from_numpy=Tensor)]
        return {one.__name__: one for one in made}


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "tileforge").mkdir()
    return Server(tmp_path / "tileforge")


@pytest.fixture
def pack(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    for name, module in server.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    name = "tileforge_nodes"
    spec = importlib.util.spec_from_file_location(name, PACK / "__init__.py", submodule_search_locations=[str(PACK)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    yield module
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(f"{name}.")]:
        del sys.modules[loaded]


def images(*pictures: np.ndarray) -> Tensor:
    """As the server has pictures of files."""
    return Tensor(np.stack(pictures).astype(np.float32) / 255)


def levels(result: Tensor) -> np.ndarray:
    """As the server saves pictures."""
    return np.clip(255.0 * result.numpy(), 0, 255).astype(np.uint8)


def test_what_its_registry_asks_for() -> None:
    project = tomllib.loads((PACK / "pyproject.toml").read_text())["project"]
    assert project["version"] == tileforge.__version__
    assert "comfyui" not in project["name"].lower()
    sources = "".join(file.read_text() for file in PACK.glob("*.py"))
    assert not [word for word in ("subprocess", "exec(", "eval(", "pip ", "os.environ") if word in sources]


def test_sockets_are_the_parameters(pack: Any) -> None:
    nodes = run_to_end(run_to_end(pack.comfy_entrypoint()).get_node_list())
    assert len(nodes) == 10
    for node in nodes:
        schema = node.define_schema()
        assert schema.node_id.startswith("Tileforge") and schema.description
        parameters = inspect.signature(node.execute).parameters
        assert {one.id for one in schema.inputs} == set(parameters)
        for one in schema.inputs:
            is_needed = parameters[one.id].default is inspect.Parameter.empty
            assert one.tooltip and is_needed != getattr(one, "optional", False), (node, one.id)


def run_to_end(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def test_engines_of_the_folder(pack: Any, server: Server, engines: Path) -> None:
    for place in ("upscale", "cpu/deep/depth", "sd", ".hidden"):
        shutil.copytree(engines / place.rsplit("/")[-1].replace(".hidden", "depth"), server.folder / place)
    (server.folder / "shipped.tar").write_bytes(b"")
    (server.folder / "a/b/c/d/e").mkdir(parents=True)
    shutil.copytree(engines / "depth", server.folder / "a/b/c/d/e/depth")
    assert pack.engines.names() == ["cpu/deep/depth", "sd", "shipped.tar", "upscale"]
    for wrong in ("none", "", "..", "../tileforge/sd", "sd/unet", str(server.folder / "sd")):
        with pytest.raises(tileforge.InvalidInput, match="no engine"):
            pack.engines.path_of(wrong)

    opened, verdict = pack.load.LoadEngine.execute("cpu/deep/depth")
    assert "depth" in verdict and "cpu" in verdict
    assert pack.load.LoadEngine.execute("cpu/deep/depth")[0] is opened
    before = pack.load.LoadEngine.fingerprint_inputs("cpu/deep/depth")
    manifest = server.folder / "cpu/deep/depth/manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    assert pack.load.LoadEngine.fingerprint_inputs("cpu/deep/depth") != before
    assert pack.load.LoadEngine.execute("cpu/deep/depth")[0] is not opened
    shutil.rmtree(server.folder / "cpu")
    with pytest.raises(tileforge.InvalidInput, match="no engine"):
        pack.load.LoadEngine.execute("cpu/deep/depth")
    with pytest.raises(tileforge.TileforgeError):
        pack.load.LoadEngine.execute("shipped.tar")


def test_pictures_equal_those_of_the_engine(
    pack: Any, server: Server, engines: Path, upscaler: tileforge.Engine, photo: np.ndarray
) -> None:
    upscale = pack.upscale.Upscale.execute
    opened = pack.engines.open_engine(str(engines / "upscale"), waiting=1)
    batch = [np.roll(photo[:40, :50], number, 1) for number in range(20)]
    made, mask = upscale(opened, images(*batch))
    # A queue of one request is full most of the time.
    assert all(np.array_equal(one, upscaler.upscale(each)) for one, each in zip(levels(made), batch, strict=True))
    assert mask.shape == (20, 160, 200) and not mask.numpy().any()
    assert server.progress == sorted(server.progress) and server.progress[-1][0] == server.progress[-1][1]
    assert pack.upscale.Upscale.execute(opened, images(photo[:1, :1]))[0].shape == (1, 4, 4, 3)

    exact = upscale(opened, images(photo), samples="float")[0].numpy()[0]
    assert np.array_equal(exact, upscaler.upscale(photo.astype(np.float32) / 255))

    alpha = np.linspace(0, 255, photo[..., 0].size).astype(np.uint8).reshape(photo.shape[:2])
    whole = upscaler.upscale(np.dstack([photo, alpha]))
    made, mask = upscale(opened, images(photo), Tensor(1 - alpha[None] / np.float32(255)))
    assert np.array_equal(levels(made)[0], whole[..., :3])
    assert np.array_equal(np.rint(255 - mask.numpy()[0] * 255), whole[..., 3])
    made, _ = upscale(opened, images(np.dstack([photo, alpha])))
    assert np.array_equal(levels(made)[0], whole)
    # Zeros, 64 by 64: the picture had no alpha.
    assert not upscale(opened, images(photo), Tensor(np.zeros((1, 64, 64))))[1].numpy().any()

    for image, given_mask, said in [
        (Tensor(photo), None, "pictures"),
        (Tensor(np.zeros((0, 8, 8, 3))), None, "pictures"),
        (Tensor(np.full((1, 8, 8, 3), np.nan)), None, "NaN"),
        (images(photo), Tensor(np.ones((1, 64, 64))), "120x90"),
        (images(photo), Tensor(np.ones((2, *photo.shape[:2]))), "masks"),
        (images(np.dstack([photo, alpha])), Tensor(np.ones((1, *alpha.shape))), "alpha"),
    ]:
        with pytest.raises(tileforge.InvalidInput, match=said):
            upscale(opened, image, given_mask)
    # Values outside of 0 to 1, which other nodes make.
    wild = images(photo).numpy() * 3 - 1
    assert np.array_equal(upscale(opened, Tensor(wild))[0].numpy(), upscale(opened, Tensor(wild.clip(0, 1)))[0].numpy())


def test_an_engine_as_an_upscale_model(pack: Any, engines: Path, upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    opened = pack.engines.open_engine(str(engines / "upscale"))
    (model,) = pack.upscale.UseAsUpscaleModel.execute(opened)
    assert model.scale == 4 and model.model is model
    batch = np.stack([photo, photo[::-1]]).astype(np.float32) / 255
    made = model(Tensor(batch.transpose(0, 3, 1, 2))).numpy()
    assert made.shape == (2, 3, 360, 480)
    for one, picture in zip(made, batch, strict=True):
        assert np.array_equal(one.transpose(1, 2, 0), upscaler.upscale(picture))
    with_alpha = np.concatenate([batch, batch[..., :1]], axis=3)
    assert np.array_equal(model(Tensor(with_alpha.transpose(0, 3, 1, 2))).numpy(), made)


def test_other_tasks(pack: Any, server: Server, engines: Path, photo: np.ndarray) -> None:
    names = ("depth", "depth_map", "sd", "encoder", "restore")
    opened = {name: pack.engines.open_engine(str(engines / name)) for name in names}
    grey, values = pack.depth.Depth.execute(opened["depth"], images(photo, photo[::-1]))
    floats = photo.astype(np.float32) / 255
    expected = tileforge.open(engines / "depth").depth(floats)
    assert np.array_equal(values.numpy()[0], expected) and grey.shape == (2, 90, 120, 3)
    nearest = np.unravel_index(expected.argmax(), expected.shape)
    assert grey.numpy()[0].min() == 0 and grey.numpy()[0][nearest].max() == 1
    assert not pack.depth.Depth.execute(opened["depth"], images(photo[:1, :1]))[0].numpy().any()
    sensor = Tensor(np.full((1, 90, 120), 0.2))
    grey, values = pack.depth.Depth.execute(opened["depth_map"], images(photo), sensor, 20.0)
    metres = tileforge.open(engines / "depth_map").depth(floats, sensor=np.full((90, 120), 4, np.float32))
    assert np.array_equal(values.numpy()[0], metres)
    known = values.numpy()[0] > 0
    assert grey.numpy()[0][known].max() == 1 and not grey.numpy()[0][~known].any()

    pipeline = tileforge.open(engines / "sd")
    settings = {"seed": 5, "steps": 4, "guidance": -1, "scheduler": "the pipeline's", "width": 0, "height": 0}
    generate = pack.generate.Generate.execute
    (made,) = generate(opened["sd"], "a fox", batch_size=2, preview_every=1, **settings)
    several = pipeline.generate_several("a fox", 2, seed=5, steps=4)
    assert all(np.array_equal(one, other) for one, other in zip(levels(made), several, strict=True))
    # A short one may end between two looks.
    for _ in range(20):
        if not server.previews:
            generate(opened["sd"], "a fox", batch_size=1, preview_every=1, **settings | {"steps": 100})
    assert server.previews > 0
    mask = np.zeros((1, *several[0].shape[:2]), np.float32)
    mask[..., :20] = 1
    (again,) = generate(opened["sd"], "a fox", batch_size=1, image=images(several[1]), mask=Tensor(mask), **settings)
    assert again.shape == (1, *several[0].shape)
    for wrong, said in [
        ({"width": 64}, "for both"),
        ({"mask": Tensor(mask)}, "a mask alone"),
        ({"settings": "eta"}, "settings"),
        ({"settings": "[1]"}, "an object"),
        ({"width": 8, "height": 8}, "8"),
    ]:
        with pytest.raises(tileforge.InvalidInput, match=said):
            generate(opened["sd"], "a fox", batch_size=1, **{**settings, **wrong})

    (latent,) = pack.latents.Encode.execute(opened["sd"], images(several[0][:-1, :-3]))
    # The server's latents are without the model's scaling.
    unscaled = pipeline.encode(several[0][:-1, :-3].astype(np.float32) / 255) / np.float32(0.18215)
    assert np.allclose(latent["samples"].numpy()[0], unscaled, rtol=1e-5)
    (back,) = pack.latents.Decode.execute(opened["sd"], latent)
    assert back.shape == (1, several[0].shape[0] - 1, several[0].shape[1] - 3, 3)
    # Another node has enlarged it.
    larger = {**latent, "samples": Tensor(latent["samples"].numpy().repeat(2, axis=3))}
    assert pack.latents.Decode.execute(opened["sd"], larger)[0].shape[2] == 2 * several[0].shape[1]
    for wrong_latent in (latent["samples"].numpy()[0], latent["samples"].numpy()[:0]):
        with pytest.raises(tileforge.InvalidInput, match="latent"):
            pack.latents.Decode.execute(opened["sd"], {"samples": Tensor(wrong_latent)})
    (clip,) = pack.latents.Encode.execute(opened["encoder"], images(*[photo[:24, :16]] * 5))
    assert clip["samples"].ndim == 5 and clip["samples"].shape[:3] == (1, 16, 2)

    for node, name in [
        (pack.upscale.Upscale, "depth"),
        (pack.depth.Depth, "sd"),
        (pack.depth.Depth, "restore"),
        (pack.latents.Encode, "depth"),
        (pack.latents.Decode, "encoder"),
    ]:
        given = latent if node is pack.latents.Decode else images(photo)
        with pytest.raises(tileforge.InvalidInput, match="expected an .*, found "):
            node.execute(opened[name], given)
    with pytest.raises(tileforge.InvalidInput, match="expected a diffusion pipeline, found depth"):
        generate(opened["depth"], "a fox", batch_size=1, **settings)


def test_a_hole_is_filled_in(pack: Any, engines: Path, photo: np.ndarray) -> None:
    inpaint = pack.inpaint.Inpaint.execute
    opened = pack.engines.open_engine(str(engines / "inpaint"))
    engine = tileforge.open(engines / "inpaint")
    hole = np.zeros((1, *photo.shape[:2]), np.float32)
    hole[:, 10:20, 30:50] = 1
    white = np.rint(hole[0] * 255).astype(np.uint8)
    batch = [photo, photo[::-1]]
    (made,) = inpaint(opened, images(*batch), Tensor(hole))
    assert all(np.array_equal(one, engine.inpaint(each, white)) for one, each in zip(levels(made), batch, strict=True))
    holes = Tensor(np.concatenate([hole, hole[:, ::-1]]))
    (made,) = inpaint(opened, images(*batch), holes)
    assert np.array_equal(levels(made)[1], engine.inpaint(photo[::-1], white[::-1]))
    # Nothing is rounded where that is asked for, outside the mask least of all.
    given = images(photo).numpy() * np.float32(0.999)
    (made,) = inpaint(opened, Tensor(given), Tensor(hole), samples="float")
    outside = hole[0] == 0
    assert np.array_equal(made.numpy()[0][outside], given[0][outside])
    assert not np.array_equal(made.numpy()[0], given[0])
    with_alpha = np.dstack([photo, photo[..., 0]])
    (made,) = inpaint(opened, images(with_alpha), Tensor(hole))
    assert np.array_equal(levels(made)[0], engine.inpaint(with_alpha, white))
    # The mask of a picture without alpha.
    assert np.array_equal(levels(inpaint(opened, images(photo), Tensor(np.zeros((1, 64, 64))))[0])[0], photo)
    for mask, said in [(np.ones((1, 9, 9)), "120x90"), (np.ones((3, 90, 120)), "masks"), (hole * np.nan, "NaN")]:
        with pytest.raises(tileforge.InvalidInput, match=said):
            inpaint(opened, images(*batch), Tensor(mask))
    with pytest.raises(tileforge.InvalidInput, match="expected an engine for inpainting, found upscale"):
        inpaint(pack.engines.open_engine(str(engines / "upscale")), images(photo), Tensor(hole))


def test_a_film_is_restored(pack: Any, server: Server, engines: Path, photo: np.ndarray) -> None:
    restore = pack.restore.Restore.execute
    opened = pack.engines.open_engine(str(engines / "restore"))
    engine = tileforge.open(engines / "restore")
    frames = [np.roll(photo[:33, :48], number, 1) for number in range(7)]
    (made,) = restore(opened, images(*frames), 5)
    assert all(np.array_equal(*pair) for pair in zip(levels(made), engine.restore(frames, seed=5), strict=True))
    assert server.progress[-1][0] == server.progress[-1][1]
    named = {"size": 32, "colour": "none"}
    (made,) = restore(opened, images(*frames), 5, frame_overlap=1, **named)
    expected = engine.restore(frames, seed=5, frame_overlap=1, **named)
    assert all(np.array_equal(*pair) for pair in zip(levels(made), expected, strict=True))
    # Each by itself, with alpha that is left out.
    pair = [np.dstack([frame, frame[..., 0]]) for frame in frames[:2]]
    (made,) = restore(opened, images(*pair), 5, film=False)
    expected = [engine.restore(frame, seed=5) for frame in frames[:2]]
    assert all(np.array_equal(*pair) for pair in zip(levels(made), expected, strict=True))
    (made,) = restore(opened, images(frames[0]), 5, film=False, samples="float")
    assert np.array_equal(made.numpy()[0], engine.restore(frames[0].astype(np.float32) / 255, seed=5))
    for wrong, said in [({"size": 40}, "graph"), ({"frame_overlap": 99}, "share"), ({"colour": "red"}, "colour")]:
        with pytest.raises(tileforge.InvalidInput, match=said):
            restore(opened, images(*frames), 5, **wrong)
    with pytest.raises(tileforge.InvalidInput, match="expected a pipeline that restores, found a diffusion pipeline"):
        restore(pack.engines.open_engine(str(engines / "sd")), images(photo), 5)


def test_an_interrupt_ends_it(
    pack: Any, server: Server, engines: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = pack.engines.open_engine(str(engines / "upscale"))
    sent: list[tileforge.Future[Any]] = []
    submit = opened.engine.submit_upscale

    def recorded(*given: Any, **named: Any) -> Any:
        sent.append(submit(*given, **named))
        if len(sent) == 1:
            timer.start()
        return sent[-1]

    def interrupt() -> None:
        server.is_interrupted = True

    timer = threading.Timer(0.5, interrupt)
    monkeypatch.setattr(opened.engine, "submit_upscale", recorded)
    large = images(*[np.tile(photo, (8, 6, 1))] * 20)
    begun = time.perf_counter()
    with pytest.raises(Interrupted):
        pack.upscale.Upscale.execute(opened, large)
    assert time.perf_counter() - begun < 8
    timer.join()
    # Those that did not finish before are cancelled, and no more are sent than are to wait in the engine.
    assert len(sent) < 20 and all(future.done() for future in sent) and sent[-1].cancelled()
    assert pack.upscale.Upscale.execute(opened, images(photo))[0].shape == (1, 360, 480, 3)

    # What one of them raises cancels the others.
    timer = threading.Timer(0, lambda: None)
    sent.clear()
    broken = np.stack([photo.astype(np.float32) / 255] * 6)
    broken[5] = np.nan
    with pytest.raises(tileforge.InvalidInput, match="NaN"):
        pack.upscale.Upscale.execute(opened, Tensor(broken))
    assert len(sent) == 5 and all(future.done() for future in sent)
