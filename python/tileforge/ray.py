"""Ray Data: pictures of a data set through an engine, on any number of machines.

>>> import ray, tileforge.ray
>>> pictures = ray.data.read_images("s3://photos", include_paths=True)
>>> pictures.map_batches(tileforge.ray.Upscaler, fn_constructor_args=("engines/x4plus",), concurrency=4)

`Upscaler` and `Files` are classes for `map_batches`: each worker opens the engine once. Give `num_gpus=1` for engines
of a GPU. This module needs the package `ray[data]`.
"""

import io
import os
import posixpath
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

import tileforge

# What Ray Data gives and takes: columns by name.
Batch = dict[str, Any]

_FORMATS = {".png": "PNG", ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".jpg": "JPEG", ".jpeg": "JPEG"}


class Upscaler:
    """Enlarges the pictures of a column.

    The pictures of a batch run together where that changes no byte. They may have different sizes.
    """

    def __init__(
        self, engine: "str | os.PathLike[str]", *, column: str = "image", result: str = "image", **options: Any
    ) -> None:
        """
        Args:
            engine: As for `tileforge.open`, at the same place on every machine.
            column: The pictures, `[height, width]` or `[height, width, channels]`.
            result: The column of the results.
            options: As for `tileforge.open`.
        """
        self._engine = tileforge.open(engine, **options)
        self._column = column
        self._result = result

    def __call__(self, batch: Batch) -> Batch:
        """The batch with the column of results."""
        futures = [self._engine.submit_upscale(np.asarray(picture)) for picture in batch[self._column]]
        results = np.empty(len(futures), dtype=object)
        for number, future in enumerate(futures):
            results[number] = future.result()
        return {**batch, self._result: results}


class Files:
    """Enlarges picture files, and writes a file for each: into a folder, or to any place that PyArrow knows, such as
    `s3://BUCKET/FOLDER`.

    A result has the name of its picture and the ending of `format`. It gets its name when it is whole, so that a worker
    that is killed leaves nothing half made, and a picture that is made twice is the same file.
    """

    def __init__(
        self, engine: "str | os.PathLike[str]", output: str, *, format: str = ".png", **options: Any
    ) -> None:
        """
        Args:
            engine: As for `tileforge.open`, at the same place on every machine.
            output: The folder of the results.
            format: The ending of their names: `.png`, `.webp`, `.tif` or `.jpg`.
            options: As for `tileforge.open`.
        """
        _checked_format(format)
        self._engine = tileforge.open(engine, **options)
        self._output = output
        self._format = format

    def __call__(self, batch: Batch) -> Batch:
        """A batch with the columns `root` and `path` becomes one with the columns `path` and `result`."""
        from PIL import Image

        names = list(zip(batch["root"], batch["path"], strict=True))
        files, output = _place(self._output)
        futures = []
        for root, name in names:
            source, folder = _place(str(root))
            with source.open_input_stream(posixpath.join(folder, str(name))) as stream:
                picture: Image.Image = Image.open(io.BytesIO(stream.read()))
            if picture.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
                picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
            futures.append(self._engine.submit_upscale(picture))
        results = []
        for (_, name), future in zip(names, futures, strict=True):
            content = io.BytesIO()
            future.result().save(content, _FORMATS[self._format])
            result = posixpath.join(output, _result_name(str(name), self._format))
            files.create_dir(posixpath.dirname(result), recursive=True)
            # The folder of what is not finished is never one that `missing` looks into.
            unfinished = posixpath.join(output, _UNFINISHED, uuid.uuid4().hex)
            files.create_dir(posixpath.dirname(unfinished), recursive=True)
            with files.open_output_stream(unfinished) as stream:
                stream.write(content.getvalue())
            files.move(unfinished, result)
            results.append(result)
        return {"path": np.array([str(name) for _, name in names]), "result": np.array(results)}


_UNFINISHED = ".unfinished"


def missing(root: str, output: str, *, format: str = ".png") -> "list[dict[str, str]]":
    """The pictures below a folder that have no result yet, as rows for `ray.data.from_items`.

    Args:
        root: The folder of the pictures, here or at any place that PyArrow knows.
        output: The folder of the results.
        format: The ending of their names.
    """
    _checked_format(format)
    finished = set(_files_below(output))
    pictures = [name for name in _files_below(root) if posixpath.splitext(name)[1].lower() in (*_FORMATS, ".bmp")]
    results: dict[str, str] = {}
    for name in pictures:
        other = results.setdefault(_result_name(name, format), name)
        if other != name:
            raise tileforge.InvalidInput(f"{other} and {name} would have one result: {_result_name(name, format)}")
    return [{"root": root, "path": name} for result, name in results.items() if result not in finished]


def enlarge(
    root: str,
    output: str,
    engine: "str | os.PathLike[str]",
    *,
    format: str = ".png",
    concurrency: int = 1,
    batch_size: int = 4,
    num_gpus: float | None = None,
    **options: Any,
) -> int:
    """Enlarges all pictures below a folder that have no result yet, on the Ray cluster that is connected.

    A call after one that was killed, or after one whose worker was killed, makes what is missing and nothing else.

    Args:
        root: The folder of the pictures, here or at any place that PyArrow knows, such as `s3://BUCKET/FOLDER`.
        output: The folder of the results.
        engine: As for `tileforge.open`, at the same place on every machine.
        format: The ending of the results' names: `.png`, `.webp`, `.tif` or `.jpg`.
        concurrency: Workers, each with an engine.
        batch_size: Pictures that a worker takes at a time.
        num_gpus: GPUs of each worker.
        options: As for `tileforge.open`.

    Returns:
        How many pictures were made.
    """
    import ray

    rows = missing(root, output, format=format)
    if not rows:
        return 0
    # Blocks of a batch: what a killed worker had begun is little.
    blocks = max(1, len(rows) // batch_size)
    data = ray.data.from_items(rows, override_num_blocks=blocks)
    made = data.map_batches(
        Files,
        fn_constructor_args=(engine, output),
        fn_constructor_kwargs={"format": format, **options},
        batch_size=batch_size,
        concurrency=concurrency,
        num_gpus=num_gpus,
    )
    return int(made.count())


def _checked_format(format: str) -> None:
    if format not in _FORMATS:
        raise tileforge.InvalidInput(f"format: expected {', '.join(_FORMATS)}, found {format}")


def _result_name(name: str, format: str) -> str:
    return posixpath.splitext(name)[0] + format


def _place(uri: str) -> Any:
    """The file system of a place, and the path there."""
    from pyarrow import fs

    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    return fs.FileSystem.from_uri(uri)


def _files_below(uri: str) -> "Sequence[str]":
    """The files below a place, sorted, as paths from there."""
    from pyarrow import fs

    files, folder = _place(uri)
    found = files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    names = [posixpath.relpath(info.path, folder) for info in found if info.type == fs.FileType.File]
    return sorted(name for name in names if not name.startswith(_UNFINISHED))
