#!/usr/bin/env python3
"""Says which share of OpenModelDB's models has an architecture that the exporter knows, and names the others.

    git clone https://github.com/OpenModelDB/open-model-database
    scripts/openmodeldb_coverage.py open-model-database

Takes a checkout, or a bare repository, whose newest commit is read then. The exporter's names are read from the files
of its registry. OpenModelDB's names are compared with them in lower case, without what is no letter or number; those
that differ stand in `OTHER_NAMES`. With `--least`, a lower share is an error.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

ARCHITECTURES = Path(__file__).resolve().parents[1] / "exporter" / "src" / "arch"
MODELS = "data/models"

# OpenModelDB's names of architectures for which the exporter has another name.
OTHER_NAMES = {
    "esrgan": "RRDBNet",
    "esrgan+": "RRDBNet",
    "compact": "SRVGGNetCompact",
    "cugan": "RealCUGAN",
    "realplksr": "PLKSR",
    "realplksr-dysample": "PLKSR",
}


def letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def known() -> set[str]:
    """The exporter's names, of the files that its registry lists."""
    registry = (ARCHITECTURES / "registry.rs").read_text()
    modules = set(re.findall(r"entry::<super::(\w+)::\w+>\(\)", registry))
    sources = [(ARCHITECTURES / f"{module}.rs").read_text() for module in sorted(modules)]
    names = {name for source in sources for name in re.findall(r'const NAME: &\'static str = "([^"]+)"', source)}
    if not names:
        sys.exit(f"error: {ARCHITECTURES}: found no names of architectures")
    return names


def read_models(path: Path) -> tuple[dict[str, dict], str]:
    """The metadata of each model by its name, and the commit that they are from."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", path, *arguments], check=True, capture_output=True).stdout

    try:
        commit = git("log", "-1", "--format=%H of %cs").decode().strip()
        archive = git("archive", "HEAD", MODELS)
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {path}: expected a checkout of OpenModelDB's metadata: {error.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        models = {
            Path(file.name).stem: json.load(files.extractfile(file)) for file in files if file.name.endswith(".json")
        }
    return models, commit


def main() -> int:
    parser = argparse.ArgumentParser(description="Which share of OpenModelDB's models the exporter knows.")
    parser.add_argument("metadata", type=Path, help="a checkout of github.com/OpenModelDB/open-model-database")
    parser.add_argument("--least", type=float, help="exit 1 when the share in percent is lower")
    arguments = parser.parse_args()

    ours = known()
    if unknown := set(OTHER_NAMES.values()) - ours:
        sys.exit(f"error: OTHER_NAMES has names that the exporter has not: {', '.join(sorted(unknown))}")
    by_letters = {letters(name): name for name in ours}
    models, commit = read_models(arguments.metadata)
    covered, missing = defaultdict(list), defaultdict(list)
    for model, metadata in sorted(models.items()):
        theirs = metadata["architecture"]
        name = OTHER_NAMES.get(theirs) or by_letters.get(letters(theirs))
        (covered[name] if name else missing[theirs]).append(model)

    def lines(groups: dict[str, list[str]], show: bool) -> None:
        for name, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
            print(f"{len(members):5} {name}" + (f": {', '.join(members)}" if show else ""))

    count = sum(map(len, covered.values()))
    share = 100 * count / len(models)
    only_onnx = sum(
        all(resource["platform"] != "pytorch" for resource in models[model]["resources"])
        for members in covered.values()
        for model in members
    )
    print(f"metadata: commit {commit}")
    print(f"covered: {count} of {len(models)} models, {share:.1f} % ({only_onnx} of them have ONNX files only)")
    lines(covered, show=False)
    print(f"missing: {len(models) - count}")
    lines(missing, show=True)
    return 1 if arguments.least is not None and share < arguments.least else 0


if __name__ == "__main__":
    sys.exit(main())
