"""Nodes that enlarge pictures."""

from typing import Any

import numpy as np
import torch
from comfy_api.latest import io

import tileforge

from . import engines, pictures, progress
from . import samples as samples_


class Upscale(io.ComfyNode):
    """Pictures through an engine."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeUpscale",
            display_name="Upscale (Engine)",
            category=engines.CATEGORY,
            description="Enlarges or restores pictures. The engine cuts large pictures into tiles, as it was built for.",
            inputs=[
                engines.Engine.Input("engine", tooltip="An engine that enlarges or restores."),
                io.Image.Input("image", tooltip="One picture or a batch, with or without alpha."),
                io.Mask.Input(
                    "mask", optional=True, tooltip="Where the picture is transparent; enlarged in the same way."
                ),
                samples_.entry(),
            ],
            outputs=[
                io.Image.Output(display_name="image"),
                io.Mask.Output(display_name="mask", tooltip="The enlarged mask; zeros where there was none."),
            ],
        )

    @classmethod
    def execute(cls, engine: Any, image: Any, mask: Any = None, samples: str = samples_.EIGHT_BITS) -> io.NodeOutput:
        """Enlarges the pictures."""
        engine.require("upscale")
        given = pictures.pictures(image)
        height, width, channels = given[0].shape
        transparent = pictures.masks(mask, [(height, width)] * len(given))
        if channels == 4 and any(one is not None for one in transparent):
            raise tileforge.InvalidInput("expected pictures without alpha or no mask, found both")
        ready = samples_.prepared(samples)
        scale = engine.info.scale
        size = (len(given), height * scale, width * scale)
        colours = np.empty((*size, channels), np.float32)
        masks = np.zeros(size, np.float32)

        def submission(picture: pictures.Floats, hidden: "pictures.Floats | None") -> progress.Submit:
            def submit() -> Any:
                whole = picture if hidden is None else np.dstack([picture, 1 - hidden])
                return engine.engine.submit_upscale(ready(whole), wait=False)

            return submit

        def take(number: int, result: Any) -> None:
            made = pictures.floats(result)
            colours[number] = made[..., :channels]
            if made.shape[2] in (2, 4):
                masks[number] = 1 - made[..., -1]

        progress.run([submission(*pair) for pair in zip(given, transparent, strict=True)], take)
        return io.NodeOutput(pictures.tensor(colours), pictures.tensor(masks))


class UseAsUpscaleModel(io.ComfyNode):
    """An engine for nodes that take an upscale model."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeUseAsUpscaleModel",
            display_name="Use Engine as Upscale Model",
            category=engines.CATEGORY,
            description="Gives an engine to nodes that take an upscale model, such as Upscale Image (using Model) or "
            "Ultimate SD Upscale. They cut pictures into tiles of their own; Upscale (Engine) does not need that.",
            inputs=[engines.Engine.Input("engine", tooltip="An engine that enlarges or restores.")],
            outputs=[io.UpscaleModel.Output(display_name="upscale model")],
        )

    @classmethod
    def execute(cls, engine: Any) -> io.NodeOutput:
        """Wraps it."""
        engine.require("upscale")
        return io.NodeOutput(UpscaleModel(engine))


class UpscaleModel(torch.nn.Module):
    """An engine in the form of an upscale model: a module from `[pictures, 3, height, width]` to the same, enlarged.

    A fourth channel is left out: callers expect three. It has no weights of PyTorch: moving it to a device, or asking for
    the size of its weights, changes nothing.
    """

    def __init__(self, engine: "engines.OpenEngine") -> None:
        super().__init__()
        self._engine = engine
        self.scale = engine.info.scale
        self.input_channels = self.output_channels = 3
        self.supports_half = self.supports_bfloat16 = False

    @property
    def model(self) -> "UpscaleModel":
        """The network, whose weights callers count."""
        return self

    def forward(self, image: Any) -> Any:
        """Enlarges pictures; the result is of the same type and on the same device."""
        given = pictures.clipped(pictures.array(image)[:, :3]).transpose(0, 2, 3, 1)
        made: list[Any] = [None] * len(given)

        def submission(picture: pictures.Floats) -> progress.Submit:
            return lambda: self._engine.engine.submit_upscale(picture, wait=False)

        # The caller's progress bar counts its own tiles.
        progress.run([submission(picture) for picture in given], made.__setitem__, has_bar=False)
        return torch.from_numpy(np.stack(made).transpose(0, 3, 1, 2).copy()).to(image)
