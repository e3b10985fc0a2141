#!/usr/bin/env python3
"""Makes the ONNX files of this folder as other people make theirs, with the outputs that they should have.

    python3 -m pip install -r tests/golden-onnx/requirements.txt
    python3 tests/golden-onnx/generate.py              writes every case
    python3 tests/golden-onnx/generate.py --check      makes every case in memory and compares it with the files

Networks of spandrel are exported by both exporters of PyTorch. Weights are uniform random numbers. `golden.safetensors`
holds inputs and outputs as a picture has them, [1, 3, height, width] of 0 to 1, whatever the file's own form is. Outputs
of networks are PyTorch's in float64, from the weights that the file has; those of files written here by hand are ONNX
Runtime's.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from spandrel.architectures.Compact import Compact
from spandrel.architectures.ESRGAN import ESRGAN
from spandrel.architectures.ESRGAN.__arch import RRDB as rrdb_module
from spandrel.architectures.PLKSR import PLKSR
from spandrel.architectures.SPAN import SPAN
from spandrel.architectures.SwinIR import SwinIR

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 3_000_000



def rrdbnet() -> torch.nn.Module:
    """With 2 channels per dense convolution: the 32 of published models would make large files."""
    blocks = rrdb_module.B
    original = blocks.RRDB
    blocks.RRDB = lambda *positional, gc, **named: original(*positional, gc=2, **named)
    try:
        return ESRGAN(in_nc=3, out_nc=3, num_filters=4, num_blocks=1, scale=4)
    finally:
        blocks.RRDB = original


NETWORKS = {
    "rrdbnet": rrdbnet,
    "compact": lambda: Compact(num_in_ch=3, num_out_ch=3, num_feat=6, num_conv=2, upscale=2),
    "span": lambda: SPAN(num_in_ch=3, num_out_ch=3, feature_channels=4, upscale=2, norm=False),
    "plksr": lambda: PLKSR(dim=8, n_blocks=1, upscaling_factor=2, kernel_size=7, split_ratio=0.25, use_ea=True),
    "swinir": lambda: SwinIR(
        img_size=16, window_size=4, embed_dim=8, depths=[2], num_heads=[2], mlp_ratio=2, upscale=2,
        upsampler="pixelshuffledirect", resi_connection="1conv",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A network of NETWORKS, exported."""

    network: str
    exporter: str  # torchscript or dynamo
    half: bool
    dynamic: bool
    opset: int

    @property
    def name(self) -> str:
        return "-".join(
            [self.network, self.exporter, "fp16" if self.half else "fp32", "dynamic" if self.dynamic else "static"]
        )


def cases() -> Iterator[Case]:
    opsets = {"rrdbnet": 11, "compact": 14, "span": 16, "plksr": 17, "swinir": 17}
    for network in NETWORKS:
        for half in (False, True):
            for dynamic in (False, True):
                yield Case(network, "torchscript", half, dynamic, opsets[network])
                yield Case(network, "dynamo", half, dynamic, 20 if half else 18)


def network_of(case: Case) -> torch.nn.Module:
    torch.manual_seed(7)
    network = NETWORKS[case.network]()
    random = numpy.random.Generator(numpy.random.PCG64(sorted(NETWORKS).index(case.network) + 1))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            fan = max(1, parameter[0].numel() if parameter.dim() > 1 else 4)
            values = random.uniform(-1, 1, tuple(parameter.shape)) * (1.5 / fan) ** 0.5
            if "norm" in name and name.endswith("weight"):
                values = 1 + values / 2
            parameter.copy_(torch.from_numpy(values).to(parameter.dtype))
    network = network.eval()
    # SPAN computes the weights of its convolutions anew in each run, from those that it was trained with.
    for module in network.modules():
        if hasattr(module, "update_params"):
            module.update_params()
            module.update_params = lambda: None
    # SwinIR makes its masks in float32, whatever it computes in.
    for module in network.modules():
        if hasattr(module, "calculate_mask"):
            masks = module.calculate_mask
            module.calculate_mask = lambda size, masks=masks: masks(size).to(network.conv_first.weight.dtype)
    # What the file holds is what the reference computes with.
    if case.half and hasattr(network, "mean"):
        # SwinIR's mean is no parameter, so it would not be rounded.
        network.mean = network.mean.half()
    return network.half() if case.half else network


STATIC = (18, 14)  # height and width


def exported(case: Case, network: torch.nn.Module) -> bytes:
    dtype = torch.float16 if case.half else torch.float32
    height, width = (16, 12) if case.network == "swinir" else STATIC
    image = torch.rand(1, 3, height, width, dtype=dtype)
    names = {"input_names": ["input"], "output_names": ["output"]}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        if case.exporter == "torchscript":
            axes = {"input": {0: "batch", 2: "height", 3: "width"}, "output": {0: "batch", 2: "h", 3: "w"}}
            torch.onnx.export(
                network, (image,), path, dynamo=False, opset_version=case.opset, **names,
                dynamic_axes=axes if case.dynamic else None,
            )  # fmt: skip
        else:
            # A size of 1 would be taken as a constant.
            image = torch.cat([image, image]) if case.dynamic else image
            dim = torch.export.Dim
            shapes = {0: dim.DYNAMIC, 2: dim.DYNAMIC, 3: dim.DYNAMIC}
            torch.onnx.export(
                network, (image,), path, dynamo=True, opset_version=case.opset, external_data=False, verbose=False,
                **names, dynamic_shapes=(shapes,) if case.dynamic else None,
            )  # fmt: skip
        model = onnx.load(path)
    return slim(model).SerializeToString(deterministic=True)


def slim(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without the stack traces that the exporters note: they name this machine's folders."""
    graph = model.graph
    # Inferred types make most of the size of files with many small nodes, and nothing reads them.
    del graph.value_info[:]
    for part in [*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer, graph, model]:
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
        part.ClearField("doc_string")
    return model


def images(case: Case) -> list[tuple[int, int]]:
    if not case.dynamic:
        return [(16, 12) if case.network == "swinir" else STATIC]
    # The exporters trace SwinIR's padding for one remainder, so its files take multiples of the window.
    return [(12, 20)] if case.network == "swinir" else [(13, 9)]


def golden(case: Case, network: torch.nn.Module) -> dict[str, torch.Tensor]:
    random = numpy.random.Generator(numpy.random.PCG64(99))
    reference = network.double()
    tensors = {}
    for index, (height, width) in enumerate(images(case)):
        image = torch.from_numpy(random.uniform(0, 1, (1, 3, height, width)).astype(numpy.float32))
        with torch.no_grad():
            made = reference(image.double())
        tensors[f"image.{index}"] = image
        tensors[f"made.{index}"] = made.float().contiguous()
    return tensors


def of_networks() -> Iterator[tuple[str, dict[str, File], str]]:
    for case in cases():
        network = network_of(case)
        data = exported(case, network)
        tensors = golden(case, network)
        remark = f"opset {case.opset}, " + ", ".join(f"{h}x{w}" for h, w in images(case))
        yield case.name, {"model.onnx": (data, {}), "golden.safetensors": (tensors, {})}, remark


def model(graph: onnx.GraphProto, opset: int = 17, **more) -> onnx.ModelProto:
    sets = [helper.make_opsetid("", opset)] + more.pop("domains", [])
    return helper.make_model(graph, opset_imports=sets, ir_version=8, **more)


def weight(name: str, shape: tuple[int, ...], seed: int, dtype=numpy.float32) -> onnx.TensorProto:
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    fan = max(1, int(numpy.prod(shape[1:])))
    return numpy_helper.from_array((random.uniform(-1, 1, shape) * (1.5 / fan) ** 0.5).astype(dtype), name)


def port(name: str, shape: list[int | str | None], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def integers(name: str, values: list[int]) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy.array(values, numpy.int64), name)


def nhwc() -> onnx.ModelProto:
    """As tf2onnx writes a Keras network: the picture comes in rows of pixels, is transposed, and back at the end."""
    nodes = [
        helper.make_node("Transpose", ["input_1:0"], ["t"], "model/conv2d/Conv2D__6", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "k1", "b1"], ["c1"], "model/conv2d/Conv2D", auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["c1"], ["r1"], "model/conv2d/Relu"),
        helper.make_node("Conv", ["r1", "k2", "b2"], ["c2"], "model/conv2d_1/Conv2D", auto_pad="SAME_UPPER"),
        helper.make_node("DepthToSpace", ["c2"], ["d"], "model/depth_to_space", blocksize=2),
        helper.make_node("Transpose", ["d"], ["Identity:0"], "model/back", perm=[0, 2, 3, 1]),
    ]
    weights = [weight("k1", (6, 3, 3, 3), 1), weight("b1", (6,), 2), weight("k2", (12, 6, 5, 5), 3), weight("b2", (12,), 4)]
    graph = helper.make_graph(
        nodes, "tf2onnx", [port("input_1:0", ["unk__8", "unk__9", "unk__10", 3])],
        [port("Identity:0", ["unk__11", "unk__12", "unk__13", 3])], weights,
    )  # fmt: skip
    return model(graph, 13, producer_name="tf2onnx", producer_version="1.16.1")


def custom() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["input", "k"], ["c"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("DCNv2", ["c"], ["output"], "body/deformable", domain="mmdeploy"),
    ]
    graph = helper.make_graph(
        nodes, "g", [port("input", [1, 3, "h", "w"])], [port("output", [1, 3, "h", "w"])], [weight("k", (3, 3, 3, 3), 1)]
    )
    return model(graph, domains=[helper.make_opsetid("mmdeploy", 1)])


def plain(scale: int = 2, inputs=None, outputs=None, **more) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["input", "k1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "k2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", ["c2"], ["output"], "shuffle", blocksize=scale),
    ]
    weights = [weight("k1", (6, 3, 3, 3), 11), weight("b1", (6,), 12), weight("k2", (3 * scale**2, 6, 3, 3), 13)]
    graph = helper.make_graph(
        nodes, "g", [inputs or port("input", [1, 3, "h", "w"])], [outputs or port("output", [1, 3, "H", "W"])], weights,
        value_info=more.pop("value_info", []),
    )  # fmt: skip
    return model(graph, **more)


def liar() -> onnx.ModelProto:
    """What it says of its values and of its output is wrong: shapes, and the number of channels."""
    wrong = [port("c1", [1, 7, "h", 5]), port("r1", [1, 2]), port("c2", [1, 12, 1, 1])]
    return plain(outputs=port("output", [1, 1, 640, 480]), value_info=wrong)


def upsampled() -> onnx.ModelProto:
    """Operators as they were in opset 9: Upsample, Slice and Pad with attributes, Clip with attributes."""
    nodes = [
        helper.make_node("Pad", ["input"], ["p"], "pad", mode="reflect", pads=[0, 0, 2, 2, 0, 0, 2, 2]),
        helper.make_node("Conv", ["p", "k1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c1"], ["r1"], "clip", min=-0.25, max=0.75),
        helper.make_node("Slice", ["r1"], ["s"], "crop", axes=[2, 3], starts=[2, 2], ends=[-2, -2]),
        helper.make_node("Upsample", ["s", "scales"], ["u"], "up", mode="nearest"),
        helper.make_node("Conv", ["u", "k2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Dropout", ["c2"], ["output"], "drop", ratio=0.5),
    ]
    weights = [
        weight("k1", (6, 3, 3, 3), 21), weight("b1", (6,), 22), weight("k2", (3, 6, 3, 3), 23),
        numpy_helper.from_array(numpy.array([1, 1, 2, 2], numpy.float32), "scales"),
    ]  # fmt: skip
    # Old files list weights among their inputs.
    inputs = [port("input", [1, 3, "h", "w"])] + [port(w.name, list(w.dims)) for w in weights]
    graph = helper.make_graph(nodes, "g", inputs, [port("output", [1, 3, "H", "W"])], weights)
    return model(graph, 9)


def bytes_in() -> onnx.ModelProto:
    """A picture of bytes, BGR, rows of pixels; bytes out. A strided convolution needs multiples of 2."""
    nodes = [
        helper.make_node("Cast", ["input"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["f"], ["t"], "in", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "k1", "b1"], ["c1"], "down", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["c1", "k2"], ["c2"], "up", strides=[2, 2]),
        helper.make_node("Add", ["c2", "t"], ["sum"], "sum"),
        helper.make_node("Transpose", ["sum"], ["back"], "out", perm=[0, 2, 3, 1]),
        helper.make_node("Clip", ["back", "zero", "white"], ["clipped"], "clip"),
        helper.make_node("Cast", ["clipped"], ["output"], "bytes", to=TensorProto.UINT8),
    ]
    weights = [
        weight("k1", (6, 3, 3, 3), 31), weight("b1", (6,), 32), weight("k2", (6, 3, 2, 2), 33),
        numpy_helper.from_array(numpy.float32(0), "zero"), numpy_helper.from_array(numpy.float32(255), "white"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [port("input", [1, "h", "w", 3], TensorProto.UINT8)],
        [port("output", [1, "H", "W", 3], TensorProto.UINT8)], weights,
    )  # fmt: skip
    return model(graph)


def pooled() -> onnx.ModelProto:
    """Channels are weighted by their means over the whole picture, as in squeeze-and-excitation."""
    nodes = [
        helper.make_node("Conv", ["input", "k1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c1"], ["p"], "pool"),
        helper.make_node("Conv", ["p", "k2"], ["e"], "excite"),
        helper.make_node("Sigmoid", ["e"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["c1", "s"], ["m"], "scale"),
        helper.make_node("Conv", ["m", "k3"], ["output"], "last", pads=[1, 1, 1, 1]),
    ]
    weights = [weight("k1", (6, 3, 3, 3), 41), weight("b1", (6,), 42), weight("k2", (6, 6, 1, 1), 43), weight("k3", (3, 6, 3, 3), 44)]
    graph = helper.make_graph(nodes, "g", [port("input", [1, 3, "h", "w"])], [port("output", [1, 3, "h", "w"])], weights)
    return model(graph)


def passed_through() -> onnx.ModelProto:
    """Operators that Tileforge's graphs do not have: Einsum, TopK, HardSwish, Where, NonZero's like."""
    nodes = [
        helper.make_node("Conv", ["input", "k1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["c1"], ["h"], "activation"),
        helper.make_node("Einsum", ["h", "m"], ["e"], "mix", equation="bchw,cd->bdhw"),
        helper.make_node("TopK", ["e", "k"], ["values", "places"], "largest", axis=1),
        helper.make_node("ReduceMean", ["values"], ["mean"], "mean", axes=[1], keepdims=1),
        helper.make_node("Celu", ["mean"], ["celu"], "celu"),
        helper.make_node("Add", ["celu", "input"], ["output"], "sum"),
    ]
    weights = [weight("k1", (6, 3, 3, 3), 51), weight("b1", (6,), 52), weight("m", (6, 5), 53), integers("k", [2])]
    graph = helper.make_graph(nodes, "g", [port("input", [1, 3, "h", "w"])], [port("output", [1, 3, "h", "w"])], weights)
    return model(graph)


def quantised() -> onnx.ModelProto:
    """With Q/DQ around its layers, calibrated by another program."""
    scale = lambda name, value: numpy_helper.from_array(numpy.float32(value), name)  # noqa: E731
    zero = numpy_helper.from_array(numpy.int8(0), "zero")
    random = numpy.random.Generator(numpy.random.PCG64(61))
    kernel = numpy_helper.from_array(random.integers(-127, 128, (12, 3, 3, 3)).astype(numpy.int8), "k")
    nodes = [
        helper.make_node("QuantizeLinear", ["input", "sx", "zero"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "sx", "zero"], ["x"], "dq"),
        helper.make_node("DequantizeLinear", ["k", "sk", "zero"], ["w"], "dqk"),
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", ["c"], ["output"], "shuffle", blocksize=2),
    ]
    weights = [scale("sx", 1 / 127), scale("sk", 0.002), zero, kernel, weight("b", (12,), 62)]
    graph = helper.make_graph(nodes, "g", [port("input", [1, 3, "h", "w"])], [port("output", [1, 3, "H", "W"])], weights)
    return model(graph)


def tensors() -> onnx.ModelProto:
    """Two inputs without a known meaning, and two outputs, one of integers."""
    nodes = [
        helper.make_node("MatMul", ["features", "k"], ["m"], "product"),
        helper.make_node("Gather", ["table", "labels"], ["g"], "embedding", axis=0),
        helper.make_node("Add", ["m", "g"], ["scores"], "sum"),
        helper.make_node("ArgMax", ["scores"], ["best"], "best", axis=1, keepdims=0),
    ]
    weights = [weight("k", (8, 5), 71), weight("table", (4, 5), 72)]
    graph = helper.make_graph(
        nodes, "g", [port("features", ["n", 8]), port("labels", ["n"], TensorProto.INT32)],
        [port("scores", ["n", 5]), port("best", ["n"], TensorProto.INT64)], weights,
    )  # fmt: skip
    return model(graph)


def cyclic() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["input", "b"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "two"),
        helper.make_node("Identity", ["a"], ["output"], "three"),
    ]
    return model(helper.make_graph(nodes, "g", [port("input", [1, 3, 8, 8])], [port("output", [1, 3, 8, 8])]))


def nested(depth: int) -> onnx.GraphProto:
    """A condition within a condition."""
    inner = helper.make_node("Identity", ["input"], ["deep"], "leaf") if depth == 0 else None
    if inner is None:
        branch = nested(depth - 1)
        inner = helper.make_node("If", ["yes"], ["deep"], f"if-{depth}", then_branch=branch, else_branch=nested(0))
    return helper.make_graph([inner], f"g{depth}", [], [port("deep", [1, 3, 8, 8])])


def hostile() -> dict[str, tuple[bytes, list[str]]]:
    """Files that are wrong or meant to harm, each with words of the error that it has to give."""
    size = [1, 3, 8, 8]
    ends = ([port("input", size)], [port("output", size)])
    copy = helper.make_node("Relu", ["input"], ["output"], "relu")
    found: dict[str, tuple[bytes, list[str]]] = {}

    def add(name: str, made: onnx.ModelProto, *words: str) -> None:
        found[name] = (made.SerializeToString(deterministic=True), list(words))

    def graph(nodes, inputs=None, outputs=None, weights=()) -> onnx.ModelProto:
        return model(helper.make_graph(nodes, "g", inputs or ends[0], outputs or ends[1], list(weights)))

    whole = plain().SerializeToString(deterministic=True)
    found["truncated"] = (whole[: len(whole) // 2], ["not a valid ONNX model"])
    found["empty"] = (b"", ["no graph"])
    found["text"] = (b"This is no graph, and has never been one.", ["not a valid ONNX model"])
    add("no-nodes", graph([]), "nothing makes the output `output`")
    add("no-inputs", model(helper.make_graph(
        [helper.make_node("Identity", ["w"], ["output"], "copy")], "g", [], ends[1], [weight("w", (1, 3, 8, 8), 1)])),
        "inputs and outputs")  # fmt: skip
    add("several-inputs", graph([helper.make_node("Add", ["input", "other"], ["output"], "sum")],
        [port("input", size), port("other", size)]), "expected one input and one output", "2 and 1")  # fmt: skip
    add("negative-sizes", graph([copy], [port("input", [1, 3, -5, 8])]), "`input`")
    add("enormous-sizes", graph([copy], [port("input", [1, 3, 2**40, 2**40])]), "memory can address")
    add("large-sizes", graph([copy], [port("input", [1, 3, 2**20, 2**20])]), "memory")
    add("text-input", graph([copy], [port("input", [1, 3, 8, 8], TensorProto.STRING)]), "`input`")
    add("integer-input", graph([helper.make_node("Cast", ["input"], ["output"], "cast", to=TensorProto.FLOAT)],
        [port("input", size, TensorProto.INT16)]), "floats or bytes", "i16")  # fmt: skip
    add("four-channels", graph([copy], [port("input", [1, 4, 8, 8])], [port("output", [1, 4, 8, 8])]), "1 or 3 channels")
    add("one-axis-free", graph([copy], [port("input", [1, 3, "h", 8])]), "both sides")
    add("classifier", graph([helper.make_node("GlobalAveragePool", ["input"], ["output"], "pool")]), "scale")
    short = numpy_helper.from_array(numpy.zeros((3, 3, 3, 3), numpy.float32), "k")
    short.raw_data = short.raw_data[:-4]
    conv = helper.make_node("Conv", ["input", "k"], ["output"], "conv", pads=[1, 1, 1, 1])
    add("short-weight", graph([conv], weights=[short]), "weight `k`")
    huge = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[2**31, 2**31, 3, 3], raw_data=b"1234")
    add("huge-weight", graph([conv], weights=[huge]), "weight `k`")
    negative = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[3, -3, 3, 3], raw_data=b"")
    add("negative-weight", graph([conv], weights=[negative]), "weight `k`", "negative")

    def external(location: str, length: int) -> onnx.TensorProto:
        made = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[3, 3, 3, 3], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": location, "offset": "0", "length": str(length)}.items():
            made.external_data.add(key=key, value=value)
        return made

    add("outside", graph([conv], weights=[external("../../outside.bin", 324)]), "must be in the graph's folder")
    add("outside-absolute", graph([conv], weights=[external("/etc/passwd", 324)]), "must be in the graph's folder")
    add("missing-data", graph([conv], weights=[external("gone.bin", 324)]), "gone.bin")
    add("two-gigabytes", graph([conv], weights=[external("expected.json", 2**31)]), "expected 324 bytes")
    twice = [weight("k", (3, 3, 3, 3), 1), weight("k", (3, 3, 3, 3), 2)]
    add("two-weights", graph([conv], weights=twice), "`k`")
    add("made-twice", graph([copy, helper.make_node("Tanh", ["input"], ["output"], "again")]), "made twice", "`output`")
    add("unsorted", graph([helper.make_node("Relu", ["a"], ["output"], "second"),
        helper.make_node("Tanh", ["input"], ["a"], "first")]), "`a`")  # fmt: skip
    add("cycle", cyclic(), "`b`")
    add("own-output", graph([helper.make_node("Add", ["input", "output"], ["output"], "self")]), "its own output")
    add("unknown-operator", graph([helper.make_node("Enlarge", ["input"], ["output"], "enlarge")]), "Enlarge")
    add("old-opset", model(helper.make_graph([copy], "g", *ends), 5), "operator set of 7 or newer")
    add("wrong-weight", graph([helper.make_node("Conv", ["input", "k"], ["output"], "conv")],
        weights=[weight("k", (3, 5, 3, 3), 1)]), "node `conv`")  # fmt: skip
    yes = numpy_helper.from_array(numpy.array(True), "yes")
    branch = nested(12)
    deep = helper.make_node("If", ["yes"], ["output"], "outer", then_branch=branch, else_branch=branch)
    del branch
    add("deep", graph([deep], weights=[yes]), "nested")
    loop = nested(1)
    mean = helper.make_node("ReduceMean", ["input"], ["deep"], "mean", axes=[1])
    loop.node[0].CopyFrom(mean)
    inner = helper.make_node("If", ["yes"], ["output"], "branches", then_branch=loop, else_branch=loop)
    add("old-branches", graph([inner], weights=[yes]), "node `branches`", "opset")
    training = numpy_helper.from_array(numpy.array(True), "training")
    drop = helper.make_node("Dropout", ["input", "", "training"], ["output"], "drop")
    add("training", graph([drop], weights=[training]), "node `drop`", "training mode")
    fill = [
        helper.make_node("ConstantOfShape", ["sides"], ["fill"], "fill"),
        helper.make_node("ReduceMean", ["fill"], ["mean"], "mean", keepdims=0),
        helper.make_node("Add", ["input", "mean"], ["output"], "sum"),
    ]
    add("bomb", graph(fill, weights=[integers("sides", [2**17, 2**17])]), "fill")
    return found


def run(made: onnx.ModelProto, feeds: dict[str, numpy.ndarray]) -> list[numpy.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def golden_of(made: onnx.ModelProto, sizes: list[tuple[int, int]], into, out_of) -> dict[str, torch.Tensor]:
    """Pictures through a file: `into` makes the file's input of a picture, `out_of` a picture of its output."""
    random = numpy.random.Generator(numpy.random.PCG64(98))
    found = {}
    for index, (height, width) in enumerate(sizes):
        image = random.uniform(0, 1, (1, 3, height, width)).astype(numpy.float32)
        (output,) = run(made, {made.graph.input[0].name: into(image)})
        found[f"image.{index}"] = torch.from_numpy(image)
        found[f"made.{index}"] = torch.from_numpy(numpy.ascontiguousarray(out_of(output))).float()
    return found


def by_hand() -> Iterator[tuple[str, dict[str, File], str]]:
    same = lambda values: values  # noqa: E731
    rows = lambda values: values.transpose(0, 2, 3, 1)  # noqa: E731
    planes = lambda values: values.transpose(0, 3, 1, 2)  # noqa: E731
    in_bytes = lambda image: (rows(image)[..., ::-1] * 255).round().clip(0, 255).astype(numpy.uint8)  # noqa: E731
    out_of_bytes = lambda output: planes(output[..., ::-1]).astype(numpy.float32) / 255  # noqa: E731
    odd = [(13, 9), (8, 21)]
    with_pictures = [
        ("nhwc", nhwc(), odd, rows, planes, "rows of pixels, as of TensorFlow"),
        ("liar", liar(), odd, same, same, "its shapes are wrong"),
        ("opset-9", upsampled(), odd, same, same, "operators of opset 9"),
        ("bytes-bgr", bytes_in(), [(14, 10), (8, 22)], in_bytes, out_of_bytes, "bytes, BGR"),
        ("pooled", pooled(), odd, same, same, "means over the picture"),
        ("passed-through", passed_through(), odd, same, same, "operators without a rule"),
        ("quantised", quantised(), odd, same, same, "Q/DQ"),
    ]
    for name, made, sizes, into, out_of, remark in with_pictures:
        tensors_made = golden_of(made, sizes, into, out_of)
        files = {"model.onnx": (made.SerializeToString(deterministic=True), {}), "golden.safetensors": (tensors_made, {})}
        yield name, files, remark
    for name, made, remark in [("custom", custom(), "a custom operator"), ("cyclic", cyclic(), "a cycle")]:
        yield name, {"model.onnx": (made.SerializeToString(deterministic=True), {})}, remark
    features = numpy.random.Generator(numpy.random.PCG64(97)).uniform(-1, 1, (3, 8)).astype(numpy.float32)
    labels = numpy.array([2, 0, 3], numpy.int32)
    scores, best = run(tensors(), {"features": features, "labels": labels})
    values = {"features": features, "labels": labels.astype(numpy.int64), "scores": scores, "best": best}
    stored = {name: torch.from_numpy(value) for name, value in values.items()}
    files = {"model.onnx": (tensors().SerializeToString(deterministic=True), {}), "golden.safetensors": (stored, {})}
    yield "tensors", files, "no meaning"
    made = hostile()
    files = {f"{name}.onnx": (data, {}) for name, (data, _) in made.items()}
    files["expected.json"] = ({name: words for name, (_, words) in made.items()}, {})
    yield "hostile", files, f"{len(made)} files"


def every_case() -> Iterator[tuple[str, dict[str, File], str]]:
    yield from of_networks()
    yield from by_hand()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files, and write nothing")
    return write(FOLDER, every_case(), TOTAL_BYTES, parser.parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
