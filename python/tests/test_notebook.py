"""The notebook docs/notebook.ipynb, run by a kernel as Jupyter runs it."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from conftest import REPOSITORY
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient
from PIL import Image

import tileforge

NOTEBOOK = REPOSITORY / "docs/notebook.ipynb"
# What a message of a kernel holds: texts and pictures by their media type.
Shown = dict[str, Any]


class Watched(NotebookClient):
    """Keeps what a cell shows in the place of what it showed before, too, of which the notebook keeps the last."""

    def __init__(self, notebook: nbformat.NotebookNode, **options: Any) -> None:
        super().__init__(notebook, **options)
        self.updates: dict[str, list[Shown]] = {}

    def process_message(self, msg: dict[str, Any], cell: nbformat.NotebookNode, cell_index: int) -> Any:
        if msg["msg_type"] == "update_display_data":
            self.updates.setdefault(cell["id"], []).append(msg["content"]["data"])
        return super().process_message(msg, cell, cell_index)


def picture_in(shown: Shown) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(shown["image/png"]))) as image:
        return np.asarray(image)


def pictures_of(outputs: list[Any]) -> Iterator[np.ndarray]:
    return (picture_in(output["data"]) for output in outputs if "image/png" in output.get("data", {}))


def test_the_notebook(engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFORGE_ENGINES", str(engines))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # Not a kernel of the machine's own Jupyter, which would be another Python.
    write_kernel_spec(str(tmp_path / "JUPYTER_DATA_DIR/kernels/wheel"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = {cell["id"]: cell for cell in notebook.cells}
    codes = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes), "clear its outputs"

    # A cell that raises ends this.
    client = Watched(notebook, timeout=120, kernel_name="wheel", resources={"metadata": {"path": NOTEBOOK.parent}})
    client.execute()
    said = "".join(output.get("text", "") for cell in codes for output in cell["outputs"])
    assert "upscale, 4 times" in said and "(100, 100) → (400, 400)" in said

    with Image.open(REPOSITORY / "tests/images/coffee.png") as image:
        photo = np.asarray(image.convert("RGB"))
    [both] = pictures_of(cells["before-after"]["outputs"])
    after = tileforge.open(engines / "upscale").upscale(photo[80:180, 180:280])
    assert both.shape == (400, 808, 3) and np.array_equal(both[:, 408:], after)
    [both] = pictures_of(cells["depth-colours"]["outputs"])
    coloured, depth = both[:, photo.shape[1] + 8 :], tileforge.open(engines / "depth").depth(photo)
    assert np.array_equal(both[:, : photo.shape[1]], photo) and coloured.shape == photo.shape
    near, far = (coloured[np.unravel_index(place, depth.shape)] for place in (depth.argmax(), depth.argmin()))
    assert near.tolist() == [240, 230, 140] and far.tolist() == [25, 25, 112]

    updates = client.updates["generate-previews"]
    steps: list[tileforge.Step] = []
    pipeline = tileforge.open(engines / "sd")
    made = pipeline.generate("a red fox in the snow", seed=42, steps=20, preview_every=1, on_step=steps.append)
    counted = [shown["text/plain"] for shown in updates if "image/png" not in shown]
    assert counted == [repr(f"Step {step.done} of {step.total}") for step in steps]
    expected = [step.picture for step in steps if step.picture is not None] + [made]
    shown = [picture_in(shown) for shown in updates if "image/png" in shown]
    assert len(shown) == len(expected) > 20
    assert all(np.array_equal(*pair) for pair in zip(shown, expected, strict=True))
    # What is left to see is the picture.
    assert np.array_equal(list(pictures_of(cells["generate-previews"]["outputs"]))[-1], made)
