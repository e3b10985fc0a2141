"""Engines: where they are, and which are open."""

import os
import weakref
from typing import Any

import folder_paths
from comfy_api.latest import io

import tileforge

#: The type of the sockets that carry an engine: an `OpenEngine`.
Engine = io.Custom("TILEFORGE_ENGINE")

CATEGORY = "Tileforge"
#: The key of the folders in extra_model_paths.yaml, and the folder's name below `models`.
FOLDER = "tileforge"
#: The choice of a provider that leaves it to the engine.
BEST = "best"
PROVIDERS = [BEST, "tensorrt-rtx", "tensorrt", "cuda", "openvino", "cpu"]

_MANIFEST = "manifest.json"
# Folders below the registered ones that are looked through, such as engines/cpu/x4plus.
_DEPTH = 4

_DIFFUSION = "diffusion"
_KINDS = {
    "upscale": "an engine that enlarges or restores pictures with one network",
    "depth": "an engine for depth",
    "inpaint": "an engine for inpainting",
    "vae_encoder": "an autoencoder with its encoder",
    "vae_decoder": "an autoencoder with its decoder",
    "restore": "a pipeline that restores",
    _DIFFUSION: "a diffusion pipeline",
}

# Open engines that are still used, so that two nodes with the same engine share its memory.
_open: "weakref.WeakValueDictionary[tuple[Any, ...], OpenEngine]" = weakref.WeakValueDictionary()


def register_folder() -> None:
    """Lets the server know the folder of engines, `models/tileforge`."""
    folder_paths.add_model_folder_path(FOLDER, os.path.join(folder_paths.models_dir, FOLDER))


def names() -> list[str]:
    """The engines of the registered folders, by their paths from there: folders with a manifest, and `.tar` files."""
    found: set[str] = set()
    for root in folder_paths.get_folder_paths(FOLDER):
        for folder, folders, files in os.walk(root, followlinks=True):
            place = os.path.relpath(folder, root)
            inside = "" if place == os.curdir else place.replace(os.sep, "/") + "/"
            if _MANIFEST in files and inside:
                found.add(inside.rstrip("/"))
                # The parts of an engine are no engines.
                folders.clear()
                continue
            found.update(inside + file for file in files if file.endswith(".tar"))
            if inside.count("/") >= _DEPTH:
                folders.clear()
            folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found)


def path_of(name: str) -> str:
    """The path of an engine in the registered folders.

    Raises:
        InvalidInput: There is no such engine.
    """
    roots = folder_paths.get_folder_paths(FOLDER)
    # Only what the list shows: a name such as ../../elsewhere is none of them.
    if name in names():
        for root in roots:
            path = os.path.join(root, *name.split("/"))
            if os.path.exists(path):
                return str(path)
    raise tileforge.InvalidInput(f"there is no engine {name!r} in {', '.join(roots)}")


def fingerprint(path: str) -> str:
    """Changes when the engine at a path is built anew or goes away."""
    if path.startswith("oci://"):
        return path
    file = os.path.join(path, _MANIFEST) if os.path.isdir(path) else path
    try:
        state = os.stat(file)
    except OSError:
        return "missing"
    return f"{state.st_mtime_ns} {state.st_size}"


class OpenEngine:
    """An open engine, and how it was opened."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.engine = tileforge.open(path, **options)
        self.info = self.engine.info
        self._path = path
        self._options = options
        self._contracts: dict[str, dict[str, Any]] = {}

    def require(self, kind: str) -> None:
        """Checks that the engine is of a kind: for a task, or `diffusion` for a pipeline of that.

        Raises:
            InvalidInput: It is of another one.
        """
        is_diffusion = self.info.manifest.get(_DIFFUSION) is not None
        if kind not in (self.info.task, _DIFFUSION if is_diffusion else None):
            found = self.info.task or (_KINDS[_DIFFUSION] if is_diffusion else "an engine of several parts")
            raise tileforge.InvalidInput(f"expected {_KINDS[kind]}, found {found}: the engine {self.info.name}")

    def contract(self, task: str) -> dict[str, Any]:
        """The contract of the network for a task, of this engine or of its first part for it.

        Raises:
            InvalidInput: There is none.
        """
        if task not in self._contracts:
            self._contracts[task] = self._found(task)
        return self._contracts[task]

    def _found(self, task: str) -> dict[str, Any]:
        contract: dict[str, Any]
        if self.info.task is not None:
            contract = self.info.manifest["contract"]
            if contract["task"] == task:
                return contract
        # Those whose names say it come first: each part that is opened is checked.
        for part in sorted(self.info.parts, key=lambda name: (task not in name, task.removeprefix("vae_") not in name)):
            contract = tileforge.open(self._path, part=part, **self._options).info.manifest["contract"]
            if contract["task"] == task:
                return contract
        found = self.info.task or "parts " + ", ".join(self.info.parts)
        raise tileforge.InvalidInput(f"expected {_KINDS[task]}, found {found}: the engine {self.info.name}")


def open_engine(path: str, **options: Any) -> OpenEngine:
    """Opens an engine, or gives the one that is open already.

    Raises:
        InvalidInput: There is none, or it is not whole.
        DoesNotFit: It cannot run on this machine.
    """
    key = (path, fingerprint(path), *sorted(options.items()))
    opened = _open.get(key)
    if opened is None:
        opened = OpenEngine(path, options)
        _open[key] = opened
    return opened
