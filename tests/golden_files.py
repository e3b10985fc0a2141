"""Golden files: the same contents give the same bytes, and new outputs are compared with stored ones within a
tolerance. For the generators in the folders beside this file."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

CHECK_TOLERANCE = 1e-6  # of the range of a tensor's values, or of 1 if that range is smaller

# Tensors and metadata; for a name that ends in .json: the JSON object and nothing; or bytes.
File = tuple[dict | bytes, dict]


def extent(values: torch.Tensor) -> float:
    return float(values.max() - values.min())


def encode(name: str, file: File) -> bytes:
    contents, metadata = file
    if isinstance(contents, bytes):
        return contents
    if name.endswith(".json"):
        return (json.dumps(contents, indent=2, sort_keys=True) + "\n").encode()
    encoded = safetensors.torch.save(contents, metadata)
    # The library writes the metadata in an order that changes from run to run, so the header is written again, sorted.
    length = int.from_bytes(encoded[:8], "little")
    header = json.dumps(json.loads(encoded[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + encoded[8 + length :]


def differences(path: Path, file: File) -> list[str]:
    """The differences between a file and the one just made."""
    contents, metadata = file
    if not path.is_file():
        return ["is missing"]
    if isinstance(contents, bytes):
        return [] if path.read_bytes() == contents else ["has other bytes"]
    if path.suffix == ".json":
        return [] if json.loads(path.read_text()) == contents else ["has other contents"]
    found = []
    with safetensors.safe_open(path, "pt") as stored:
        if other := set(stored.keys()) ^ set(contents):
            return [f"has other tensors: {sorted(other)}"]
        kept = stored.metadata() or {}
        for key, value in metadata.items():
            if key != "generator" and kept.get(key) != value:
                found.append(f"has {key} {kept.get(key)!r}, not {value!r}")
        for key, made in contents.items():
            tensor = stored.get_tensor(key)
            if tensor.dtype != made.dtype or tensor.shape != made.shape:
                found.append(f"{key} is {tensor.dtype} {list(tensor.shape)}, not {made.dtype} {list(made.shape)}")
                continue
            error = float((tensor.double() - made.double()).abs().max())
            if not error <= CHECK_TOLERANCE * max(1.0, extent(made.double())):
                found.append(f"{key} differs by {error:.2e}")
    return found


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments that every generator has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a file differs by more than 1e-6"
    )
    return made


def write_cases(
    folder: Path,
    cases: Iterable[Any],
    make: Callable[[Any], tuple[dict[str, File], float]],
    most_bytes: int,
    check: bool,
) -> int:
    """As `write`, for cases with a name. `make` gives a case's files, and how much float32 arithmetic differs."""

    def made() -> Iterator[tuple[str, dict[str, File], str]]:
        for case in cases:
            files, single = make(case)
            yield case.name, files, f"float32 arithmetic differs by {single:.1e} of the range"

    return write(folder, made(), most_bytes, check)


def write(folder: Path, cases: Iterable[tuple[str, dict[str, File], str]], most_bytes: int, check: bool) -> int:
    """Writes each case's files into a folder of its name, or compares them with the files there. A case is its name,
    its files and a remark. Returns the exit code: 1 if a file differs, is missing or belongs to no case, or if all
    files together are larger than `most_bytes`."""
    wrong, total, count, expected = [], 0, 0, set()
    for case, files, remark in cases:
        place = folder / case
        encoded = {name: encode(name, file) for name, file in files.items()}
        expected |= {place / name for name in files}
        size = sum(map(len, encoded.values()))
        total, count = total + size, count + 1
        if check:
            wrong += [
                f"{case}/{name} {text}" for name, file in files.items() for text in differences(place / name, file)
            ]
        else:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for name, data in encoded.items():
                (place / name).write_bytes(data)
        print(f"{case:32} {size:>8,} bytes   {remark}", flush=True)
    present = {path for path in folder.glob("*/*") if path.parent.name != "__pycache__"}
    wrong += [f"{path.relative_to(folder)} belongs to no case" for path in sorted(present - expected)]
    if total > most_bytes:
        wrong.append(f"all files together take {total:,} bytes, more than {most_bytes:,}")
    print(f"{count} cases, {total:,} bytes")
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    return 1 if wrong else 0
