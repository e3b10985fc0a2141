"""Nodes for the autoencoders of diffusion models, of pictures and of clips.

A latent of the server is as the autoencoder has it: its nodes multiply by the model's scaling where they need that. A
latent of an engine is as the diffusion model has it, `(latent − shift) · scaling`.
"""

from typing import Any

import numpy as np
from comfy_api.latest import io

import tileforge

from . import engines, pictures, progress

# What Encode adds to a latent, so that Decode cuts what the autoencoder added to the picture.
_ORIGIN = "tileforge_origin"


class Encode(io.ComfyNode):
    """Pictures to latents."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeEncode",
            display_name="Encode (Engine)",
            category=engines.CATEGORY,
            description="Encodes pictures with an engine's autoencoder. An autoencoder of clips, such as SeedVR2's, "
            "takes the batch as the frames of one clip.",
            inputs=[
                engines.Engine.Input("engine", tooltip="An autoencoder, or a diffusion pipeline that has one."),
                io.Image.Input("image", tooltip="Pictures, or the frames of a clip. Alpha is left out."),
            ],
            outputs=[io.Latent.Output(display_name="latent")],
        )

    @classmethod
    def execute(cls, engine: Any, image: Any) -> io.NodeOutput:
        """Encodes the pictures."""
        contract = engine.contract("vae_encoder")
        given = [picture[..., :3] for picture in pictures.pictures(image)]
        is_clip = _has_frames(contract["inputs"][0])

        def submission(frames: list[pictures.Floats]) -> progress.Submit:
            def submit() -> Any:
                ready = [pictures.clipped(frame) for frame in frames]
                return engine.engine.submit_encode(ready if is_clip else ready[0], wait=False)

            return submit

        clips = [given] if is_clip else [[picture] for picture in given]
        latents: list[Any] = [None] * len(clips)
        progress.run([submission(clip) for clip in clips], latents.__setitem__)
        meaning = contract["outputs"][0]["meaning"]
        values = np.stack(latents) / np.float32(meaning["scaling"]) + np.float32(meaning["shift"])
        height, width = given[0].shape[:2]
        origin = {"shape": list(values.shape), "size": (width, height), "frames": len(given) if is_clip else None}
        return io.NodeOutput({"samples": pictures.tensor(values), _ORIGIN: origin})


class Decode(io.ComfyNode):
    """Latents to pictures."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeDecode",
            display_name="Decode (Engine)",
            category=engines.CATEGORY,
            description="Decodes latents with an engine's autoencoder.",
            inputs=[
                engines.Engine.Input("engine", tooltip="An autoencoder, or a diffusion pipeline that has one."),
                io.Latent.Input("latent", tooltip="Of Encode (Engine), or of any node for the same autoencoder."),
            ],
            outputs=[io.Image.Output(display_name="image", tooltip="Pictures, or the frames of a clip.")],
        )

    @classmethod
    def execute(cls, engine: Any, latent: Any) -> io.NodeOutput:
        """Decodes the latents."""
        port = engine.contract("vae_decoder")["inputs"][0]
        samples = latent["samples"]
        axes = 5 if _has_frames(port) else 4
        if samples.ndim != axes or 0 in samples.shape:
            names = "number, channels, frames, height, width" if axes == 5 else "number, channels, height, width"
            raise tileforge.InvalidInput(f"latent: expected [{names}], found {list(samples.shape)}")
        meaning = port["meaning"]
        values = (pictures.array(samples) - np.float32(meaning["shift"])) * np.float32(meaning["scaling"])
        # Other nodes change latents, and leave what they do not know.
        origin = latent.get(_ORIGIN)
        is_as_encoded = origin is not None and origin["shape"] == list(samples.shape)
        size, frames = (origin["size"], origin["frames"]) if is_as_encoded else (None, None)

        def submission(one: pictures.Floats) -> progress.Submit:
            return lambda: engine.engine.submit_decode(one, size=size, frames=frames, wait=False)

        made: list[Any] = [None] * len(values)
        progress.run([submission(one) for one in values], made.__setitem__)
        decoded = np.concatenate([np.stack(one if isinstance(one, list) else [one]) for one in made])
        return io.NodeOutput(pictures.tensor(pictures.floats(decoded)))


def _has_frames(port: dict[str, Any]) -> bool:
    return any(isinstance(axis, dict) and "frames" in axis for axis in port["axes"])
