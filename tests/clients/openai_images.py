"""Asks a server for pictures as OpenAI's client does: openai_images.py HOST:PORT ENGINE PICTURE

PICTURE is a PNG of 64x64.
"""

import base64
import struct
import sys
import zlib

import openai

address, engine, path = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)


def size_of(coded):
    data = base64.b64decode(coded)
    assert data.startswith(b"\x89PNG"), data[:20]
    return struct.unpack(">II", data[16:24])


def png(pixels):
    """A PNG of 64x64 with alpha: pixels(x, y) is red, green, blue, alpha."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(v for x in range(64) for v in pixels(x, y)) for y in range(64))
    head = struct.pack(">IIBBBBB", 64, 64, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# The models.
assert engine in [model.id for model in client.models.list()]
assert client.models.retrieve(engine).object == "model"

# Pictures from a text. One seed is one picture.
more = {"seed": 7, "steps": 4, "guidance_scale": 3.0, "negative_prompt": "rain", "scheduler": "euler_a"}
made = client.images.generate(model=engine, prompt="a fox", n=2, size="64x64", extra_body=more)
assert [size_of(image.b64_json) for image in made.data] == [(64, 64), (64, 64)] and made.size == "64x64"
again = client.images.generate(model=engine, prompt="a fox", n=2, size="auto", extra_body=more)
assert [image.b64_json for image in made.data] == [image.b64_json for image in again.data]
other = client.images.generate(model=engine, prompt="a fox", n=2, extra_body={**more, "seed": 8})
assert other.data[0].b64_json != made.data[0].b64_json
jpeg = client.images.generate(model=engine, prompt="a fox", output_format="jpeg", extra_body={"steps": 1})
assert base64.b64decode(jpeg.data[0].b64_json).startswith(b"\xff\xd8") and jpeg.output_format == "jpeg"

# The same with previews.
events = list(
    client.images.generate(model=engine, prompt="a fox", n=2, stream=True, partial_images=3, extra_body=more)
)
kinds = [event.type for event in events]
assert kinds[-2:] == ["image_generation.completed"] * 2, kinds
previews = [event for event in events if event.type == "image_generation.partial_image"]
# A preview that a newer one overtakes is left out.
assert 1 <= len(previews) <= 3 and [event.partial_image_index for event in previews] == list(range(len(previews)))
assert all(size_of(event.b64_json) == (64, 64) for event in events)
assert [event.b64_json for event in events[-2:]] == [image.b64_json for image in made.data]

# Pictures from a picture, and from a part of it, which a mask says or the picture itself.
picture = open(path, "rb").read()
edited = client.images.edit(model=engine, image=("a.png", picture, "image/png"), prompt="a fox", extra_body=more)
assert size_of(edited.data[0].b64_json) == (64, 64)
mask = png(lambda x, y: (0, 0, 0, 0 if x < 32 else 255))
masked = client.images.edit(
    model=engine, image=[("a.png", picture, "image/png")], mask=("mask.png", mask, "image/png"), prompt="a fox",
    extra_body=more,
)
assert masked.data[0].b64_json != edited.data[0].b64_json
own = png(lambda x, y: (x * 3, y * 3, 9, 0 if x < 32 else 255))
events = list(
    client.images.edit(
        model=engine, image=("a.png", own, "image/png"), prompt="a fox", stream=True, partial_images=1,
        extra_body={**more, "strength": 1.0},
    )
)
assert [event.type for event in events] == ["image_edit.partial_image", "image_edit.completed"], events
# As JSON with data URLs.
url = "data:image/png;base64," + base64.b64encode(picture).decode()
body = {"model": engine, "prompt": "a fox", "images": [{"image_url": url}], **more}
answer = client.post("/images/edits", body=body, cast_to=object)
assert answer["data"][0]["b64_json"] == edited.data[0].b64_json


def refused(kind, words, **arguments):
    try:
        client.images.generate(**{"model": engine, "prompt": "a fox", **arguments})
    except openai.APIStatusError as error:
        assert isinstance(error, kind) and words in error.message, (error, error.message)
        return error
    raise AssertionError(f"{arguments} were not refused")


Bad = openai.BadRequestError
assert refused(openai.NotFoundError, "no model", model="none").code == "model_not_found"
for words, arguments in [
    ("n: expected a number from 1 to 10", {"n": 11}),
    ("n: expected", {"n": 0}),
    ("the body", {"n": -1}),
    ("size: expected one of 64x64", {"size": "512x512"}),
    ("size: expected one of", {"size": "4294967295x4294967295"}),
    ("size: expected WIDTHxHEIGHT", {"size": "99999999999x1"}),
    ("size: expected WIDTHxHEIGHT", {"size": "0x64"}),
    ("steps: expected a number from 1 to 150", {"extra_body": {"steps": 151}}),
    ("guidance", {"extra_body": {"guidance_scale": 1e300}}),
    ("the body", {"extra_body": {"seed": -1}}),
    ("the body", {"extra_body": {"steps": 1e300}}),
    ("response_format: expected b64_json", {"response_format": "url"}),
    ("output_format", {"output_format": "gif"}),
    ("output_compression", {"output_compression": 50}),
    ("background", {"background": "transparent"}),
    ("partial_images: expected", {"stream": True, "partial_images": 11}),
    ("prompt: expected a text of at most", {"prompt": "x" * 40000}),
    ("timeout: expected seconds", {"extra_body": {"timeout": -1}}),
    ("sampler", {"extra_body": {"scheduler": "none such", "steps": 2}}),
]:
    refused(Bad, words, **arguments)
assert refused(Bad, "steps", extra_body={"steps": 0}).param == "steps"
small = png(lambda x, y: (0, 0, 0, 0))[:60]
for words, files in [
    ("image: expected one picture", {"image": [("a.png", picture, "image/png"), ("b.png", picture, "image/png")]}),
    ("picture", {"image": ("a.png", small, "image/png")}),
]:
    try:
        client.images.edit(model=engine, prompt="a fox", **files)
    except Bad as error:
        assert words in error.message, error.message
    else:
        raise AssertionError(words)
print("all answers are as expected")
