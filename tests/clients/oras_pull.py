"""Pulls one engine with oras, a third-party client of registries.

    python3 -m venv target/oras-venv
    target/oras-venv/bin/pip install -r tests/clients/oras-requirements.txt
    target/oras-venv/bin/python tests/clients/oras_pull.py HOST:PORT/NAME@sha256:... FOLDER
"""

import sys

import oras.client


def main() -> None:
    target, folder = sys.argv[1:]
    client = oras.client.OrasClient(insecure=True)
    for path in client.pull(target=target, outdir=folder):
        print(path)


main()
