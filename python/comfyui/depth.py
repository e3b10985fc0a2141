"""The node for depth."""

from typing import Any

import numpy as np
from comfy_api.latest import io

from . import engines, pictures, progress


class Depth(io.ComfyNode):
    """The depth of pictures."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeDepth",
            display_name="Depth (Engine)",
            category=engines.CATEGORY,
            description="Estimates the depth of each pixel.",
            inputs=[
                engines.Engine.Input("engine", tooltip="An engine for depth."),
                io.Image.Input("image", tooltip="One picture or a batch."),
                io.Mask.Input(
                    "sensor",
                    optional=True,
                    tooltip="The map of a sensor, for networks that refine one: 0 where it has no depth, 1 at "
                    "sensor_range.",
                ),
                io.Float.Input(
                    "sensor_range",
                    default=10.0,
                    min=0.001,
                    max=65535.0,
                    step=0.1,
                    optional=True,
                    tooltip="The metres that 1 stands for in the sensor's map.",
                ),
            ],
            outputs=[
                io.Image.Output(
                    display_name="image",
                    tooltip="Grey, from black for the farthest to white for the nearest pixel of each picture, as "
                    "ControlNets for depth take it.",
                ),
                io.Mask.Output(
                    display_name="values",
                    tooltip="As the network gives them: metres, 0 where there is no depth; or relative inverse depth, "
                    "larger where it is nearer. Not within 0 to 1.",
                ),
            ],
        )

    @classmethod
    def execute(cls, engine: Any, image: Any, sensor: Any = None, sensor_range: float = 10.0) -> io.NodeOutput:
        """Estimates the depth of the pictures."""
        engine.require("depth")
        given = pictures.pictures(image)
        size = given[0].shape[:2]
        maps = pictures.masks(sensor, [size] * len(given), "sensor")
        values = np.empty((len(given), *size), np.float32)
        greys = np.empty((len(given), *size, 3), np.float32)

        def submission(picture: pictures.Floats, measured: "pictures.Floats | None") -> progress.Submit:
            def submit() -> Any:
                metres = None if measured is None else measured * np.float32(sensor_range)
                colours = pictures.clipped(picture[..., :3])
                return engine.engine.submit_depth(colours, sensor=metres, wait=False)

            return submit

        def take(number: int, made: pictures.Floats) -> None:
            values[number] = made
            greys[number] = _nearness(made, engine.info.depth)[..., None]

        progress.run([submission(*pair) for pair in zip(given, maps, strict=True)], take)
        return io.NodeOutput(pictures.tensor(greys), pictures.tensor(values))


def _nearness(depth: pictures.Floats, kind: "str | None") -> pictures.Floats:
    """From 0 for the farthest to 1 for the nearest pixel."""
    near, is_known = depth, np.ones(depth.shape, bool)
    if kind == "metres":
        is_known = depth > 0
        near = np.divide(1, depth, out=np.zeros_like(depth), where=is_known)
    if not is_known.any():
        return np.zeros_like(depth)
    least, most = near[is_known].min(), near[is_known].max()
    if most <= least:
        return np.zeros_like(depth)
    return np.where(is_known, (near - least) / (most - least), 0).astype(np.float32)
