#!/usr/bin/env python3
"""Checks the manifests for winget and Scoop in a release against the JSON schemas of those programs.

    cargo xtask dist --target x86_64-pc-windows-gnu --programs DIR --url URL
    scripts/check_manifests.py target/dist SCHEMAS

The folder SCHEMAS has `schema.json` of ScoopInstaller/Scoop, and the three files `manifest.KIND.1.10.0.json` of
microsoft/winget-cli (schemas/JSON/manifests/v1.10.0). They are no part of this repository, so this is no part of CI.
It needs the packages jsonschema and PyYAML.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import jsonschema
import yaml


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: scripts/check_manifests.py RELEASE SCHEMAS", file=sys.stderr)
        return 2
    release, schemas = map(Path, sys.argv[1:])
    manifests = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in release.glob("*.*.yaml")}
    by_kind = {manifest["ManifestType"]: manifest for manifest in manifests.values()}
    if sorted(by_kind) != ["defaultLocale", "installer", "version"]:
        print(f"error: expected three manifests for winget in {release}, found {sorted(manifests)}", file=sys.stderr)
        return 1
    checked = [(f"manifest.{kind}.1.10.0.json", manifest) for kind, manifest in by_kind.items()]
    scoop = json.loads((release / "tileforge.json").read_text(encoding="utf-8"))
    checked.append(("schema.json", scoop))
    for name, manifest in checked:
        schema = json.loads((schemas / name).read_text(encoding="utf-8"))
        validator = jsonschema.validators.validator_for(schema)
        validator.check_schema(schema)
        validator(schema, format_checker=validator.FORMAT_CHECKER).validate(manifest)
        print(f"{name}: accepted")

    # What both say of the archive is so.
    installer = by_kind["installer"]["Installers"][0]
    archive = release / installer["InstallerUrl"].rsplit("/", 1)[-1]
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    found = {installer["InstallerSha256"].lower(), scoop["architecture"]["64bit"]["hash"]}
    if found != {sha256} or installer["InstallerUrl"] != scoop["architecture"]["64bit"]["url"]:
        print(f"error: {archive}: expected SHA-256 {sha256} in both manifests, found {found}", file=sys.stderr)
        return 1
    print(f"{archive.name}: its SHA-256 is in both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
