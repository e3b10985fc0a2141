"""Nodes for engines of Tileforge: load, upscale, restore, inpaint, depth, encode, decode and generate."""

from .engines import register_folder
from .nodes import comfy_entrypoint

register_folder()

__all__ = ["comfy_entrypoint"]
