#!/usr/bin/env python3
"""Asks a server what its OpenAPI document describes, with schemathesis, and checks what it answers.

    openapi_document.py ADDRESS [OPTION…]        with more options of `schemathesis run`

The server has the engines `model` (pictures to pictures), `restorer`, `depth`, `sd` (texts to pictures) and `spare`,
which is loaded and unloaded. schemathesis makes requests that conform to the document, and others that do not. Most texts that
it makes up name no engine and are no picture, so this file puts names and pictures in the place of some of them:
schemathesis loads it as its hooks.
"""

import base64
import random
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import schemathesis
from hypothesis import strategies
from schemathesis.core.failures import ServerError

ENGINES = {"upscale": "model", "depth": "depth", "generations": "sd", "edits": "sd", "txt2img": "sd", "img2img": "sd"}

# Messages of server errors that requests cause on purpose: an engine was unloaded by a request, or a request has a
# timeout.
ASKED_FOR = {503: ["is unloaded", '"ready":false'], 504: ["the deadline has passed"]}


def png(width, height, channels=3, bits=8):
    """A picture with as many channels: grey, grey with alpha, colours, colours with alpha."""
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    row = bytes(number % 251 for number in range(width * channels * bits // 8))
    pixels = zlib.compress(b"".join(b"\0" + row for _ in range(height)))
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def bmp(width, height):
    row = bytes(number % 251 for number in range(width * 3)) + bytes(-width * 3 % 4)
    return struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + len(row) * height, 0, 54, 40, width, height, 1, 24, 0,
                       len(row) * height, 2835, 2835, 0, 0) + row * height


GOOD = [png(24, 24), png(40, 30), png(1, 1), png(64, 64, 4), png(7, 90, 1), png(16, 8, 2, 16), bmp(20, 20)]
# A picture that is cut, one of no pixels, one of more pixels than are taken, one whose pixels are not there.
BAD = [GOOD[0][:-30], png(0, 3), png(30000, 1)[:33] + bytes(8), bmp(9, 9)[:60], b"GIF89a", b"\x89PNG\r\n\x1a\n",
       png(2, 2)[:20] + struct.pack(">I", 60000) + png(2, 2)[24:], b"\xff\xd8\xff\xe0", b"RIFF\x04\0\0\0WEBP", b"II*\0"]

pictures = strategies.one_of(strategies.sampled_from(GOOD), strategies.sampled_from(BAD), strategies.binary())
for media_type in ["image/*", "image/png"]:
    schemathesis.openapi.media_type(media_type, pictures)


def tensor(name, side, choose):
    values = [choose.uniform(-2, 2) for _ in range(3 * side * side)]
    return {"name": name, "shape": [1, 3, side, side], "datatype": "FP32", "data": values}


def engine_of(path, choose):
    engine = ENGINES.get(path.rsplit("/", 1)[-1], "model")
    # Both engines are for the same paths.
    return choose.choice(["model", "restorer"]) if path.endswith("/upscale") else engine


def size_of(engine):
    return "48x32" if engine == "restorer" else "64x64"


@schemathesis.hook
def map_body(context, body):
    """Texts of forms that name what the server knows. Other bodies are changed below, in every phase."""
    if isinstance(body, dict) and set(body) & {"image", "mask"}:
        choose = random.Random(repr(body))
        engine = engine_of(context.operation.path, choose)
        known = {"engine": engine, "model": engine, "size": size_of(engine), "scheduler": "euler_a"}
        for name, value in known.items():
            if isinstance(body.get(name), str) and choose.random() < 0.67:
                body[name] = value
    return body


@schemathesis.hook
def before_call(context, case, kwargs):
    """Puts what the server knows in the place of texts that are made up, in two of three requests."""
    choose = random.Random(repr((case.path, case.path_parameters, case.query, case.body)))
    name = (case.path_parameters or {}).get("name")
    if isinstance(name, str) and case.path.endswith(("/load", "/unload")):
        # schemathesis also learns names from answers. Other requests need the other engines.
        if name in [*ENGINES.values(), "restorer"] or choose.random() < 0.67:
            case.path_parameters["name"] = "spare"
    elif isinstance(name, str) and choose.random() < 0.67:
        case.path_parameters["name"] = choose.choice(["model", "depth", "sd", "spare"])
    if case.meta is None or not case.meta.generation.mode.is_positive or choose.random() < 0.33:
        return
    engine, body = engine_of(case.path, choose), case.body
    if isinstance((case.query or {}).get("engine"), str):
        case.query["engine"] = engine
        if isinstance(case.query.get("size"), str):
            case.query["size"] = size_of(engine)
    # schemathesis takes a form with files for one that does not conform once it was changed here.
    if not isinstance(body, dict) or case.media_type == "multipart/form-data":
        return
    picture = base64.b64encode(choose.choice(GOOD)).decode()
    known = {"engine": engine, "model": engine, "size": "64x64", "scheduler": "euler_a", "sampler_name": "Euler a",
             "width": 64, "height": 64, "steps": choose.randint(1, 4), "n": 1, "batch_size": 1, "n_iter": 1,
             "sd_model_checkpoint": "sd", "upscaler_1": "model", "image": picture, "mask": picture,
             "init_images": [picture], "images": [picture]}
    body.update({name: value for name, value in known.items() if name in body})
    if body.get("inputs") and case.path.endswith("/infer"):
        side = 24 if case.path_parameters["name"] != "depth" else 56
        body["inputs"] = [tensor("image" if side == 24 else "pixel_values", side, choose)]
        body.pop("outputs", None)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Some errors are what the request asks for."""
    texts = ASKED_FOR.get(response.status_code, []) if isinstance(failure, ServerError) else []
    return not any(text in response.text for text in texts)


CONFIGURATION = f"""
hooks = "{Path(__file__).resolve()}"
suppress-health-check = ["all"]
cache.enabled = false
"""


def main():
    address, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "schemathesis.toml"
        configuration.write_text(CONFIGURATION)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", configuration, "run", "--no-color"]
        # What conforms to the document may still be refused: most texts are no picture.
        command += [f"http://{address}/openapi.json", "--exclude-checks", "positive_data_acceptance"]
        command += ["--continue-on-failure"]
        command += ["--generation-database", "none", *more]
        return subprocess.run(command, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
