"""Profiles with other shapes or floors than the shipped ones, for scripts that measure."""

from __future__ import annotations

import re
from pathlib import Path

from commands import ROOT


def with_shapes(name: str, shapes: str) -> str:
    """profiles/cpu.yaml under another name, with these shapes for upscaling: `{ tiles: [64x64] }`."""
    text = (ROOT / "profiles/cpu.yaml").read_text().replace("name: cpu", f"name: {name}")
    return re.sub("upscale: .*", f"upscale: {shapes}", text)


def changed(name: str, changes: str, folder: Path) -> Path:
    """FOLDER/NAME.yaml: the shipped profile of this name, with these keys at its end."""
    if not (families := folder / "families").exists():
        families.symlink_to(ROOT / "profiles" / "families")
    path = folder / f"{name}.yaml"
    path.write_text((ROOT / "profiles" / path.name).read_text() + changes)
    return path
