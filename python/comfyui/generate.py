"""The node for pictures from texts."""

import json
from typing import Any

import numpy as np
from comfy_api.latest import io

import tileforge

from . import engines, pictures, progress

_OWN = "the pipeline's"
_SAMPLERS = [
    *("Euler", "Euler a", "Heun", "LMS", "DPM++ 2M", "DPM++ 2M Karras", "DPM++ 2M SDE", "DPM++ 2M SDE Karras"),
    *("UniPC", "DDIM", "PLMS", "LCM"),
]


class Generate(io.ComfyNode):
    """Pictures from a text, from pictures, or in a masked part of them."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeGenerate",
            display_name="Generate (Engine)",
            category=engines.CATEGORY,
            description="Makes pictures from a text with a diffusion pipeline. With an image it starts from that, and "
            "with a mask it makes the masked part anew.",
            inputs=[
                engines.Engine.Input("engine", tooltip="A diffusion pipeline."),
                io.String.Input("prompt", multiline=True, dynamic_prompts=True, tooltip="What is to be seen."),
                io.String.Input(
                    "negative_prompt", default="", multiline=True, optional=True, tooltip="What is not to be seen."
                ),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=2**64 - 1,
                    control_after_generate=True,
                    tooltip="Of the random numbers. The same seed gives the same picture.",
                ),
                io.Int.Input("steps", default=30, min=1, max=1000, tooltip="From noise to the picture."),
                io.Float.Input(
                    "guidance",
                    default=-1.0,
                    min=-1.0,
                    max=1000.0,
                    step=0.5,
                    tooltip="How much the text counts. -1: as the pipeline has it.",
                ),
                io.Combo.Input(
                    "scheduler", options=[_OWN, *_SAMPLERS], default=_OWN, tooltip="How noise becomes the picture."
                ),
                io.Int.Input(
                    "width",
                    default=0,
                    min=0,
                    max=16384,
                    step=8,
                    tooltip="A size that the engine was built for: the output verdict of Load Engine lists them. 0: "
                    "the largest, or that of the image.",
                ),
                io.Int.Input("height", default=0, min=0, max=16384, step=8, tooltip="As for the width."),
                io.Int.Input("batch_size", default=1, min=1, max=1024, tooltip="Pictures of one seed."),
                io.Image.Input(
                    "image", optional=True, tooltip="What to start from; each picture of a batch by itself."
                ),
                io.Mask.Input("mask", optional=True, tooltip="Where the image is made anew, and nowhere else."),
                io.Float.Input(
                    "strength",
                    default=0.8,
                    min=0.0,
                    max=1.0,
                    step=0.05,
                    optional=True,
                    tooltip="How far the image is changed. Without an image it does not count.",
                ),
                io.Int.Input(
                    "preview_every",
                    default=0,
                    min=0,
                    max=1000,
                    optional=True,
                    tooltip="Steps between two previews; each costs a run of the decoder. 0: none.",
                ),
                io.String.Input(
                    "settings",
                    default="",
                    optional=True,
                    tooltip='Other settings as JSON, such as {"eta": 0.5}: those of the record of `runtime generate`.',
                ),
            ],
            outputs=[io.Image.Output(display_name="image")],
        )

    @classmethod
    def execute(
        cls,
        engine: Any,
        prompt: str,
        seed: int,
        steps: int,
        guidance: float,
        scheduler: str,
        width: int,
        height: int,
        batch_size: int,
        negative_prompt: str = "",
        image: Any = None,
        mask: Any = None,
        strength: float = 0.8,
        preview_every: int = 0,
        settings: str = "",
    ) -> io.NodeOutput:
        """Makes the pictures."""
        engine.require("diffusion")
        if (width == 0) != (height == 0):
            raise tileforge.InvalidInput(f"expected a width and a height, or 0 for both, found {width}x{height}")
        if image is None and mask is not None:
            raise tileforge.InvalidInput("expected an image for the mask, found a mask alone")
        given: dict[str, Any] = {
            "count": batch_size,
            "negative_prompt": negative_prompt or None,
            "seed": seed,
            "steps": steps,
            "guidance": None if guidance < 0 else guidance,
            "size": (width, height) if width else None,
            "scheduler": None if scheduler == _OWN else scheduler,
            "settings": _settings(settings),
            "preview_every": preview_every or None,
        }
        starts: list[dict[str, Any]] = [{}]
        if image is not None:
            sources = [pictures.clipped(picture[..., :3]) for picture in pictures.pictures(image)]
            sizes = [(source.shape[0], source.shape[1]) for source in sources]
            parts = pictures.masks(mask, sizes)
            starts = [
                {"image": source, "mask": part, "strength": strength}
                for source, part in zip(sources, parts, strict=True)
            ]

        def submission(start: dict[str, Any]) -> progress.Submit:
            return lambda: engine.engine.submit_generate(prompt, **given, **start, wait=False)

        made: list[Any] = [None] * len(starts)
        progress.run([submission(start) for start in starts], made.__setitem__)
        several = np.stack([picture for some in made for picture in some])
        return io.NodeOutput(pictures.tensor(pictures.floats(several)))


def _settings(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise tileforge.InvalidInput(f"settings: {error}") from error
    if not isinstance(settings, dict):
        raise tileforge.InvalidInput(f'settings: expected an object such as {{"eta": 0.5}}, found {text.strip()}')
    return settings
