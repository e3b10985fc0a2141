"""Writes what `bench_serving.py` sends, and what ONNX Runtime makes of the tensor, to a folder."""

import os
import sys
from pathlib import Path

import numpy
import onnxruntime
from PIL import Image

folder, photo = map(Path, sys.argv[1:])
sample = numpy.random.default_rng(0).random((1, 3, 64, 64), numpy.float32)
session = onnxruntime.InferenceSession(os.environ["GRAPH"], providers=["CPUExecutionProvider"])
[output] = session.run(None, {session.get_inputs()[0].name: sample})
(folder / "tensor.body").write_bytes(sample.tobytes())
(folder / "tensor.expected").write_bytes(output.tobytes())
Image.open(photo).convert("RGB").resize((256, 256)).save(folder / "picture.body", "PNG")
