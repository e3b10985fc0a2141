"""Opening engines."""

import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tileforge import _libraries, _native, _system

if TYPE_CHECKING:
    from tileforge._engine import Engine

# Unpickled engines that are still in use, by source and options: the tasks of a worker share one.
_unpickled: "weakref.WeakValueDictionary[tuple[Any, ...], Engine]" = weakref.WeakValueDictionary()


def open(
    source: str | os.PathLike[str],
    *,
    verify_key: str | os.PathLike[str] | None = None,
    part: str | None = None,
    provider: str | None = None,
    strict: bool = False,
    threads: int | None = None,
    streams: int | None = None,
    devices: Sequence[int] = (),
    waiting: int = 64,
    cache: str | os.PathLike[str] | None = None,
    onnxruntime: str | os.PathLike[str] | None = None,
) -> "Engine":
    """Opens an engine, which is checked to be whole. Its sessions open with its first request.

    Args:
        source: A folder of `engine-builder build`, a `.tar` of `engine-builder pack`, or `oci://HOST/NAME:TAG`, the one
            in a registry that fits this machine best. Engines from archives and registries are kept in `cache`.
        verify_key: The file of the public key that must have signed it. An engine without this
            signature is refused before anything of it is parsed.
        part: The part of an engine of several parts, such as `"decoder"`; by default the whole engine.
        provider: `"tensorrt-rtx"`, `"tensorrt"`, `"cuda"`, `"openvino"` or `"cpu"`; by default the best that fits, from
            the one that the engine was built for down to the CPU.
        strict: Take no step down: raise `DoesNotFit` if the first provider does not fit or does not take every node.
        threads: Threads of each session on the CPU; by default one for each physical core that this process may use.
        streams: Sessions that run at the same time; by default as the engine's profile says, one on the CPU.
        devices: Numbers of the GPUs to use; by default the first.
        waiting: How many requests wait for their turn, at least 1.
        cache: The folder for data that can be made again; by default `tileforge` in the user's cache folder.
        onnxruntime: ONNX Runtime's library; by default that of the package `onnxruntime` or `onnxruntime-gpu`. A
            process loads one.

    Returns:
        The engine. It can be used from any number of threads, and pickled: a pickle has the source and these
        options, and the engine is opened again where it is unpickled.

    Raises:
        InvalidInput: There is no engine there, it is not whole, or not signed by the key; an option is
            invalid.
        DoesNotFit: The engine cannot run on this machine.
        Failed: ONNX Runtime is not installed; the registry cannot be reached; this process was forked from one that had
            opened an engine.
    """
    options: dict[str, Any] = {
        "verify_key": None if verify_key is None else os.path.abspath(verify_key),
        "part": part,
        "provider": provider,
        "strict": strict,
        "threads": threads,
        "streams": streams,
        "devices": [int(device) for device in devices],
        "waiting": waiting,
        "cache": None if cache is None else os.path.abspath(cache),
        "onnxruntime": None if onnxruntime is None else os.path.abspath(onnxruntime),
    }
    place = os.fspath(source)
    if not place.startswith("oci://"):
        # Where it is unpickled, the working folder may be another.
        place = os.path.abspath(place)
    return _opened(place, options)


def _opened(source: str, options: dict[str, Any]) -> "Engine":
    # NumPy is imported with it, which takes longer than this package.
    from tileforge._engine import Engine

    given = dict(options)
    given["onnxruntime"] = given["onnxruntime"] or _libraries.onnxruntime()
    given["cache"] = given["cache"] or _cache()
    native = _native.Engine.open(source, library_folders=_libraries.folders(), **given)
    return Engine(native, source, (reopened, (source, options)))


def reopened(source: str, options: dict[str, Any]) -> "Engine":
    """The engine of a pickle. Engines of the same source and options are one while it is used."""
    key = (source, *((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items()))
    engine = _unpickled.get(key)
    if engine is None or _native.is_foreign():
        engine = _opened(source, options)
        _unpickled[key] = engine
    return engine


def _cache() -> str | None:
    """The folder that the programs use, too. None where the user has none."""
    base = _system.caches()
    return None if base is None else os.path.join(base, "tileforge")
