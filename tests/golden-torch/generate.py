#!/usr/bin/env python3
"""Writes checkpoints of `tests/golden` as `torch.save` writes them, in the forms that training programs and people use.

    python3 -m pip install -r tests/golden-torch/requirements.txt
    python3 tests/golden-torch/generate.py              writes every case
    python3 tests/golden-torch/generate.py --check      makes every case in memory and compares it with the files

A case is a row of CASES and nothing else. Every file is loaded again with `torch.load(weights_only=True)`, PyTorch's
own reader that runs nothing, and must hold the tensors of its twin. The seeds of the fuzz target, very small files of
the same forms, are made here, too.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 1_000_000
SEEDS = FOLDER.parents[1] / "fuzz/seeds/torch_file"

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    twin: str  # the folder in tests/golden whose checkpoint this is
    file: str
    form: Callable[[State], object]  # what is saved
    read: Callable[[object], State]  # the network in what was saved
    legacy: bool = False
    protocol: int = 2
    repack: Callable[[bytes], bytes] = bytes  # what another program did to the file


def bare(state: State) -> State:
    return state


def wrapped(*path: str) -> dict[str, Callable]:
    """Dictionaries inside each other, as training programs nest them."""

    def form(state: State) -> object:
        for key in reversed(path):
            state = {key: state}
        return state

    def read(saved: object) -> State:
        for key in path:
            saved = saved[key]
        return saved

    return {"form": form, "read": read}


def basicsr(state: State) -> dict:
    """Both copies of the network; the averaged one counts."""
    return {
        "params": OrderedDict((key, torch.zeros_like(value)) for key, value in state.items()),
        "params_ema": OrderedDict(state),
    }


def data_parallel(state: State) -> dict:
    return {"state_dict": {f"module.{key}": value for key, value in state.items()}, "epoch": 7}


def lightning(state: State) -> dict:
    """A checkpoint of PyTorch Lightning, with everything that it keeps for going on."""
    parameters = [torch.nn.Parameter(value.clone()) for value in list(state.values())[:3]]
    optimiser = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.99))
    sum(parameter.square().sum() for parameter in parameters).backward()
    optimiser.step()
    return {
        "epoch": 3,
        "global_step": 1 << 40,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}, "is_last": True}}},
        "callbacks": {
            "ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.25), "dirpath": "/tmp/é"}
        },
        "optimizer_states": [optimiser.state_dict()],
        "lr_schedulers": [{"base_lrs": [1e-4], "last_epoch": 3, "_step_count": 4}],
        "hyper_parameters": OrderedDict(
            lr=1e-4, tiles={64, 128}, device=torch.device("cpu"), dtype=torch.bfloat16, size=torch.Size([3, 4])
        ),
        "codes": [
            torch.tensor([1, 2], dtype=torch.uint16),
            torch.ones(2, dtype=torch.complex64),
            b"bytes",
            bytearray(b"more"),
        ],
    }


def parameters(state: State) -> dict:
    """Parameters with hooks' place and gradients on, in an OrderedDict with attributes, as `state_dict()` gives it."""
    made = OrderedDict((key, torch.nn.Parameter(value)) for key, value in state.items())
    made._metadata = OrderedDict([("", {"version": 1}), ("body", {"version": 1})])
    return made


def views(state: State) -> dict:
    """Tensors in every form of memory: one storage for all biases, other layouts, and a part of a larger tensor."""
    made, biases = {}, [value for value in state.values() if value.dim() == 1]
    joined = torch.cat([torch.zeros(5), *biases])
    place = 5
    for index, (key, value) in enumerate(state.items()):
        if value.dim() == 1:
            made[key] = joined[place : place + len(value)]
            place += len(value)
        elif index % 3 == 0:
            made[key] = value.contiguous(memory_format=torch.channels_last)
        elif index % 3 == 1:
            made[key] = torch.stack([value, -value], dim=-1)[..., 0]
        else:
            made[key] = torch.cat([value, value])[len(value) :]
    return made


def repacked(compression: int, big_endian: bool = False) -> Callable[[bytes], bytes]:
    """The archive packed again, as from a machine with the other byte order if asked for."""

    def repack(saved: bytes) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(saved)) as source, zipfile.ZipFile(made, "w", compression) as target:
            for entry in source.infolist():
                data = source.read(entry)
                if big_endian and entry.filename.endswith("/byteorder"):
                    data = b"big"
                if big_endian and "/data/" in entry.filename:
                    data = torch.frombuffer(bytearray(data), dtype=torch.int32).numpy().byteswap().tobytes()
                target.writestr(zipfile.ZipInfo(entry.filename), data, compression)
        return made.getvalue()

    return repack


CASES = [
    Case("realesrgan", "rrdbnet-realesrgan-x1", "RealESRGAN.pth", **wrapped("params_ema")),
    Case("basicsr", "compact-x4", "net_g_latest.pth", form=basicsr, read=lambda saved: saved["params_ema"]),
    Case("spandrel", "span-x4", "4x-SPAN.pth", form=bare, read=bare),
    Case("esrgan-legacy", "rrdbnet-esrgan-x4", "RRDB_ESRGAN_x4.pth", form=bare, read=bare, legacy=True),
    Case("legacy-nested", "compact-x2", "checkpoint.pt", **wrapped("model", "net_g"), legacy=True),
    Case(
        "data-parallel",
        "plksr-x4",
        "checkpoint.pt",
        form=data_parallel,
        read=lambda saved: {key.removeprefix("module."): value for key, value in saved["state_dict"].items()},
    ),
    Case("lightning", "compact-x3", "last.ckpt", form=lightning, read=lambda saved: saved["state_dict"]),
    Case(
        "parameters",
        "rrdbnet-module-x2",
        "model.pth",
        form=parameters,
        read=lambda saved: {key: value.detach() for key, value in saved.items()},
    ),
    Case("views", "rrdbnet-plus-x4", "model.pth", form=views, read=bare),
    Case("views-legacy", "rrdbnet-plus-x4", "model.pth", form=views, read=bare, legacy=True),
    Case("fp16", "rrdbnet-fp16-x4", "model.pth", **wrapped("params")),
    Case("bf16", "rrdbnet-bf16-x4", "pytorch_model.bin", form=bare, read=bare),
    Case("protocol-4", "compact-x1", "model.pth", **wrapped("params"), protocol=4),
    Case("protocol-5-legacy", "compact-x1", "model.pth", **wrapped("params"), protocol=5, legacy=True),
    Case("compressed", "compact-x4", "model.pth", **wrapped("params"), repack=repacked(zipfile.ZIP_DEFLATED)),
    Case(
        "big-endian",
        "compact-x4",
        "model.pth",
        **wrapped("params"),
        repack=repacked(zipfile.ZIP_STORED, big_endian=True),
    ),
    Case(
        "big-endian-views",
        "rrdbnet-plus-x4",
        "model.pth",
        form=views,
        read=bare,
        repack=repacked(zipfile.ZIP_DEFLATED, big_endian=True),
    ),
]


def twin(case: Case) -> State:
    state = safetensors.torch.load_file(FOLDER.parent / "golden" / case.twin / "checkpoint.safetensors")
    return dict(sorted(state.items()))


def saved(case: Case) -> bytes:
    file = io.BytesIO()
    torch.save(
        case.form(twin(case)), file, pickle_protocol=case.protocol, _use_new_zipfile_serialization=not case.legacy
    )
    return case.repack(file.getvalue())


def check_loads(case: Case, data: bytes) -> None:
    # PyTorch's careful reader knows protocol 2 alone.
    loaded = case.read(torch.load(io.BytesIO(data), weights_only=case.protocol == 2))
    expected = twin(case)
    same = loaded.keys() == expected.keys() and all(
        loaded[key].dtype == value.dtype and torch.equal(loaded[key], value) for key, value in expected.items()
    )
    if not same:
        raise ValueError(f"{case.name}: PyTorch reads other tensors than those of {case.twin}")


def shards() -> dict[str, File]:
    """The files of a checkpoint in two parts, as transformers writes them."""
    folder = FOLDER.parent / "golden/rrdbnet-sharded-x4"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    renamed = {
        shard: shard.replace("model-", "pytorch_model-").replace(".safetensors", ".bin")
        for shard in set(index["weight_map"].values())
    }
    index["weight_map"] = {key: renamed[shard] for key, shard in index["weight_map"].items()}
    files: dict[str, File] = {"pytorch_model.bin.index.json": (index, {})}
    for shard, name in renamed.items():
        file = io.BytesIO()
        torch.save(dict(sorted(safetensors.torch.load_file(folder / shard).items())), file)
        files[name] = (file.getvalue(), {})
    return files


def cases(check: bool) -> Iterator[tuple[str, dict[str, File], str]]:
    for case in CASES:
        present = FOLDER / case.name / case.file
        # The older format names storages by their addresses in memory, so its bytes change from run to run.
        data = present.read_bytes() if check and case.legacy and present.is_file() else saved(case)
        check_loads(case, data)
        yield case.name, {case.file: (data, {}), "case.json": ({"twin": case.twin, "file": case.file}, {})}, case.twin
    file = "pytorch_model.bin.index.json"
    yield "sharded", shards() | {"case.json": ({"twin": "rrdbnet-sharded-x4", "file": file}, {})}, "rrdbnet-sharded-x4"


def seeds() -> Iterator[tuple[str, bool, bytes]]:
    """The seeds of the fuzz target: their names, whether they are of the older format, and their bytes."""
    grid = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    small = {"params_ema": OrderedDict(a=grid, b=grid.t())}
    typed = {
        "w": torch.nn.Parameter(grid),
        "h": torch.arange(8).half()[2:5],
        "u": torch.tensor([1], dtype=torch.uint16),
    }
    beside = {
        "epoch": 3,
        "lr": 1e-4,
        "s": {1},
        "d": torch.device("cpu"),
        "n": None,
        "ok": True,
        "size": torch.Size([1, 2]),
    }
    for name, value, legacy, protocol in [
        ("zip", small, False, 2),
        ("legacy", small, True, 2),
        ("protocol-4", small, False, 4),
        ("parameters", {"state_dict": typed, **beside}, False, 2),
        ("parameters-legacy", {"state_dict": typed, **beside}, True, 2),
        ("compressed", small, False, 2),
    ]:
        file = io.BytesIO()
        torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
        data = file.getvalue()
        yield name, legacy, repacked(zipfile.ZIP_DEFLATED)(data) if name == "compressed" else data


def write_seeds(check: bool) -> int:
    """Writes the seeds, or compares them with the files there. Returns the exit code."""
    wrong, expected = 0, set()
    for name, legacy, data in seeds():
        path = SEEDS / name
        expected.add(path)
        # The older format names storages by their addresses in memory, so its bytes change from run to run.
        if check and not (path.is_file() and (legacy or path.read_bytes() == data)):
            print(f"error: {path} is missing or has other bytes", file=sys.stderr)
            wrong = 1
        if not check:
            path.write_bytes(data)
    for path in sorted(set(SEEDS.iterdir()) - expected):
        print(f"error: {path} is no seed", file=sys.stderr)
        wrong = 1
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    check = parser.parse_args().check
    sys.exit(write(FOLDER, cases(check), TOTAL_BYTES, check) | write_seeds(check))
