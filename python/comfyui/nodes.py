"""The list of nodes, which the server asks for."""

from comfy_api.latest import ComfyExtension, io

from .depth import Depth
from .generate import Generate
from .inpaint import Inpaint
from .latents import Decode, Encode
from .load import LoadEngine, LoadEngineFromPath
from .restore import Restore
from .upscale import Upscale, UseAsUpscaleModel


class Tileforge(ComfyExtension):
    """The node pack."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All nodes."""
        opened = [LoadEngine, LoadEngineFromPath]
        return [*opened, Upscale, UseAsUpscaleModel, Restore, Inpaint, Depth, Encode, Decode, Generate]


async def comfy_entrypoint() -> Tileforge:
    """Called by the server when it loads the pack."""
    return Tileforge()
