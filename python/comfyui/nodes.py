"""The list of nodes, which the server asks for."""

from comfy_api.latest import ComfyExtension, io

from .depth import Depth
from .generate import Generate
from .latents import Decode, Encode
from .load import LoadEngine, LoadEngineFromPath
from .upscale import Upscale, UseAsUpscaleModel


class Tileforge(ComfyExtension):
    """The node pack."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All nodes."""
        return [LoadEngine, LoadEngineFromPath, Upscale, UseAsUpscaleModel, Depth, Encode, Decode, Generate]


async def comfy_entrypoint() -> Tileforge:
    """Called by the server when it loads the pack."""
    return Tileforge()
