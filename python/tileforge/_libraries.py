"""Finds the libraries that engines run on: in the packages `onnxruntime` or `onnxruntime-gpu`, and `openvino`.

The packages are found, not imported, and nothing is set in the environment.
"""

import importlib.util
from pathlib import Path

from tileforge import _system
from tileforge._errors import Failed


def _folder(package: str) -> Path | None:
    """The folder of a package, which is not imported."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        # Another module of that name is loaded, which is no package.
        return None
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None


def onnxruntime() -> str:
    """The path of ONNX Runtime's library.

    Raises:
        Failed: there is no package that has one.
    """
    folder = _folder("onnxruntime")
    libraries = sorted(folder.glob(_system.ONNXRUNTIME)) if folder else []
    if not libraries:
        where = f"{folder} has none" if folder else "none is installed"
        raise Failed(
            "expected ONNX Runtime's library from a package of Python: "
            f"{where}; pip install onnxruntime, or onnxruntime-gpu for NVIDIA GPUs"
        )
    return str(libraries[-1])


def folders() -> list[str]:
    """Folders with the libraries of providers: OpenVINO, and CUDA as NVIDIA's packages have it."""
    openvino = _folder("openvino")
    found = [openvino / "libs"] if openvino else []
    nvidia = _folder("nvidia")
    if nvidia:
        found += [folder for pattern in _system.NVIDIA for folder in sorted(nvidia.glob(pattern))]
    tensorrt = _folder("tensorrt_libs")
    if tensorrt:
        found.append(tensorrt)
    return [str(folder) for folder in found if folder.is_dir()]
