"""Nodes that open engines."""

from typing import Any

from comfy_api.latest import io

from . import engines


def _options(provider: str, verify_key: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {} if provider == engines.BEST else {"provider": provider}
    if verify_key:
        options["verify_key"] = verify_key
    return options


def _provider() -> io.Input:
    return io.Combo.Input(
        "provider",
        options=engines.PROVIDERS,
        default=engines.BEST,
        optional=True,
        tooltip="What runs the engine. best: what it was built for, or the best below it that this machine has.",
    )


def _outputs() -> list[io.Output]:
    return [
        engines.Engine.Output(display_name="engine"),
        io.String.Output(
            display_name="verdict", tooltip="What the engine is, and how it fits this machine, part by part."
        ),
    ]


def _opened(path: str, options: dict[str, Any]) -> io.NodeOutput:
    opened = engines.open_engine(path, **options)
    info = opened.info
    lines = [f"{info.name}: {info.task or 'several parts: ' + ', '.join(info.parts)}"]
    if info.scale is not None:
        lines.append(f"{info.scale} times as large")
    if info.sizes:
        lines.append("sizes: " + ", ".join(f"{width}x{height}" for width, height in info.sizes))
    return io.NodeOutput(opened, "\n".join([*lines, info.verdict]))


class LoadEngine(io.ComfyNode):
    """An engine by its name."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeLoadEngine",
            display_name="Load Engine",
            category=engines.CATEGORY,
            description="Opens an engine of the folder models/tileforge. It stays open while the graph uses it.",
            inputs=[
                io.Combo.Input(
                    "name",
                    options=engines.names(),
                    tooltip="A folder of engine-builder or a .tar file, in models/tileforge or a folder that "
                    "extra_model_paths.yaml names.",
                ),
                _provider(),
            ],
            outputs=_outputs(),
        )

    @classmethod
    def fingerprint_inputs(cls, name: str, provider: str = engines.BEST) -> str:
        """Another value where the engine was built anew."""
        return engines.fingerprint(engines.path_of(name))

    @classmethod
    def execute(cls, name: str, provider: str = engines.BEST) -> io.NodeOutput:
        """Opens it."""
        return _opened(engines.path_of(name), _options(provider))


class LoadEngineFromPath(io.ComfyNode):
    """An engine by its path."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets."""
        return io.Schema(
            node_id="TileforgeLoadEngineFromPath",
            display_name="Load Engine from Path",
            category=engines.CATEGORY,
            description="Opens an engine that is anywhere on the server's machine or in a registry.",
            inputs=[
                io.String.Input(
                    "path", default="", tooltip="A folder of engine-builder, a .tar file, or oci://HOST/NAME:TAG."
                ),
                _provider(),
                io.String.Input(
                    "verify_key",
                    default="",
                    optional=True,
                    tooltip="The file of the public key that must have signed the engine. Empty: no signature is asked "
                    "for.",
                ),
            ],
            outputs=_outputs(),
        )

    @classmethod
    def fingerprint_inputs(cls, path: str, provider: str = engines.BEST, verify_key: str = "") -> str:
        """Another value where the engine was built anew."""
        return engines.fingerprint(path.strip())

    @classmethod
    def execute(cls, path: str, provider: str = engines.BEST, verify_key: str = "") -> io.NodeOutput:
        """Opens it."""
        return _opened(path.strip(), _options(provider, verify_key.strip()))
