"""The node that fills in what a mask covers."""

from typing import Any

import numpy as np
from comfy_api.latest import io

from . import engines, pictures, progress
from . import samples as samples_


class Inpaint(io.ComfyNode):
    """Pictures, filled in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeInpaint",
            display_name="Inpaint (Engine)",
            category=engines.CATEGORY,
            description="Fills in what a mask covers, without a text. All other pixels stay as they are.",
            inputs=[
                engines.Engine.Input("engine", tooltip="An engine for inpainting, such as LaMa."),
                io.Image.Input("image", tooltip="One picture or a batch, with or without alpha, which stays."),
                io.Mask.Input("mask", tooltip="White where it is filled in. One for all pictures, or one for each."),
                samples_.entry(),
            ],
            outputs=[io.Image.Output(display_name="image")],
        )

    @classmethod
    def execute(cls, engine: Any, image: Any, mask: Any, samples: str = samples_.EIGHT_BITS) -> io.NodeOutput:
        """Fills in the pictures."""
        engine.require("inpaint")
        given = pictures.pictures(image)
        ready = samples_.prepared(samples)
        holes = pictures.masks(mask, [picture.shape[:2] for picture in given])
        made = np.empty((len(given), *given[0].shape), np.float32)

        def submission(picture: pictures.Floats, hole: "pictures.Floats | None") -> progress.Submit:
            white = np.zeros(picture.shape[:2], np.float32) if hole is None else hole
            return lambda: engine.engine.submit_inpaint(ready(picture), white, wait=False)

        def take(number: int, result: Any) -> None:
            made[number] = pictures.floats(result)

        progress.run([submission(*pair) for pair in zip(given, holes, strict=True)], take)
        return io.NodeOutput(pictures.tensor(made))
