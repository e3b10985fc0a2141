"""Profiles of CPUs with other shapes than those of profiles/cpu.yaml, for scripts that measure."""

from __future__ import annotations

import re

from commands import ROOT


def with_shapes(name: str, shapes: str) -> str:
    """profiles/cpu.yaml under another name, with these shapes for upscaling: `{ tiles: [64x64] }`."""
    text = (ROOT / "profiles/cpu.yaml").read_text().replace("name: cpu", f"name: {name}")
    return re.sub("upscale: .*", f"upscale: {shapes}", text)
