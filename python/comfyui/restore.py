"""The node that restores films and pictures."""

from typing import Any

import numpy as np
from comfy_api.latest import io

from . import engines, pictures, progress
from . import samples as samples_

_COLOURS = ["lab", "wavelet", "wavelet-adaptive", "hsv", "adain", "none"]


class Restore(io.ComfyNode):
    """Frames or pictures, restored by a pipeline such as SeedVR2."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeRestore",
            display_name="Restore (Engine)",
            category=engines.CATEGORY,
            description="Restores the frames of a film, or single pictures, with a pipeline such as SeedVR2.",
            inputs=[
                engines.Engine.Input("engine", tooltip="A pipeline that restores."),
                io.Image.Input("image", tooltip="Frames or pictures of one size. Alpha is left out."),
                io.Int.Input(
                    "seed", default=42, min=0, max=2**64 - 1, tooltip="Of the noise. The same seed gives the same film."
                ),
                io.Int.Input(
                    "size",
                    default=0,
                    min=0,
                    max=65536,
                    optional=True,
                    tooltip="Pixels of the result's shorter side. 0: the largest that the engine has.",
                ),
                io.Combo.Input(
                    "colour",
                    options=_COLOURS,
                    default=_COLOURS[0],
                    optional=True,
                    tooltip="How the result gets the colours of what was given.",
                ),
                io.Boolean.Input(
                    "film",
                    default=True,
                    optional=True,
                    tooltip="The batch is the frames of one film. Off: each picture is restored by itself.",
                ),
                io.Int.Input(
                    "frame_overlap",
                    default=0,
                    min=0,
                    max=1024,
                    optional=True,
                    tooltip="Frames that the engine's runs share, where both blend: fewer than it takes together.",
                ),
                samples_.entry(),
            ],
            outputs=[io.Image.Output(display_name="image")],
        )

    @classmethod
    def execute(
        cls,
        engine: Any,
        image: Any,
        seed: int,
        size: int = 0,
        colour: str = _COLOURS[0],
        film: bool = True,
        frame_overlap: int = 0,
        samples: str = samples_.EIGHT_BITS,
    ) -> io.NodeOutput:
        """Restores the frames."""
        engine.require("restore")
        given = [picture[..., :3] for picture in pictures.pictures(image)]
        ready = samples_.prepared(samples)
        settings = {"size": size or None, "seed": seed, "colour": colour}
        if film:
            settings["frame_overlap"] = frame_overlap

        def submission(frames: list[pictures.Floats]) -> progress.Submit:
            def submit() -> Any:
                prepared = [ready(frame) for frame in frames]
                return engine.engine.submit_restore(prepared if film else prepared[0], wait=False, **settings)

            return submit

        requests = [given] if film else [[picture] for picture in given]
        made: list[Any] = [None] * len(requests)
        progress.run([submission(frames) for frames in requests], made.__setitem__)
        frames = made[0] if film else made
        return io.NodeOutput(pictures.tensor(pictures.floats(np.stack(frames))))
