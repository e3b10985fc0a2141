#!/usr/bin/env python3
"""Makes the golden data of this folder with transformers, the reference for CLIP's tokenizer.

    python3 -m pip install -r tests/golden-tokenizer/requirements.txt
    python3 tests/golden-tokenizer/generate.py              writes every case
    python3 tests/golden-tokenizer/generate.py --check      makes every case in memory and compares it with the files

A case is a tokenizer's folder, in a form in which pipelines are published, and the tokens of hard texts. The vocabulary
is trained here on a few sentences of our own: no token of a published one is copied.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from transformers import CLIPTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, encode, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 400_000
LENGTH = 77
MERGES = 300
START, END = "<|startoftext|>", "<|endoftext|>"

CORPUS = """a photo of a red fox in the snow, sharp, the light of the morning on its fur
a painting of the old harbour at night, ships and lanterns in the rain, oil on canvas
portrait of an old woman with a blue scarf, soft light, detailed skin, film grain
a small wooden house on a hill above the sea, storm clouds, wide angle, realistic
the interior of a library with tall shelves and green lamps, reflections on the floor
don't they've we'll it's I'm you're he'd
a bowl of oranges beside a glass of water on a white table, studio photograph
mountains in the distance, a river and a stone bridge, autumn leaves, golden hour"""

TEXTS = [
    "",
    " ",
    "a photo of a red fox in the snow",
    "A PHOTO of A Red FOX",
    "  spaces\t\tand\n\nlines\r\n between \u00a0 words\u3000here\u2028there ",
    "don't they've we'll it's I'm you're he'd DON'T IT'S 'tis rock'n'roll",
    "12,345.67 € — 50% (of) [the] {rest}... !!! ??? wow!! ! a!b",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstro\u0308m \u0130stanbul stra\u00dfe "
    "\ufb01n \u01c5 \u00bd \u2167 \u0664\u0665",
    "日本語のテキスト、한국어 글자 中文 русский текст ελληνικά עברית العربية हिन्दी ไทย",
    "\u1112\u1161\u11ab \uac00\u0300 e\u0323\u0302 \u0344 \u212b \u2126",
    "\U0001f98a \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 "
    "\u2764\ufe0f \U0001f1e9\U0001f1ea",
    "a\x00b\x01\x02 \x1b[31mred\x1b[0m \x7f \x85x \u200b\u200d\ufeffy",
    "before <|endoftext|> behind <|startoftext|> <|ENDOFTEXT|><|endoftext|>x<|endoftext|",
    "<|endoftext|>",
    "!",
    "unknowable: \ue000 \U00102345 \ufffd \u0378",
    "a" * 200,
    "snow! " * 60,
    "the " * 75,
    "the " * 76,
    "日" * 40,
    "x" + "\u0301" * 30,
    "{prompt:1.2} (weights:0.5) [a|b] \\ \" ' ` ~ ^ & * < > / \u2019s \u2018re",
    "photo_of_a-fox.png https://example.org/a?b=c&d=%20",
]
LONG = ("a painting of the old harbour, 3 ships! ", 1250)  # 10,000 words

RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0x9FF), (0x2000, 0x206F)]
RANGES += [(0x3040, 0x30FF), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x1F300, 0x1F6FF), (0, 0x1F)]


def random_texts() -> list[str]:
    source = random.Random(17)
    texts = []
    for _ in range(150):
        words = []
        for _ in range(source.randint(1, 6)):
            low, high = source.choice(RANGES)
            words.append("".join(chr(source.randint(low, high)) for _ in range(source.randint(1, 6))))
        texts.append(source.choice(["", " ", "  ", "!"]).join(words))
    return texts


def byte_letters() -> list[str]:
    """The letter that stands for each byte, in the order of CLIP's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]


def trained() -> list[tuple[str, str]]:
    """The most frequent pair becomes one token, again and again."""
    counts = Counter(word for word in CORPUS.lower().replace(",", " ,").split())
    words = {tuple(word[:-1]) + (word[-1] + "</w>",): count for word, count in counts.items()}
    merges = []
    for _ in range(MERGES):
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged = {}
        for word, count in words.items():
            made, index = [], 0
            while index < len(word):
                if word[index : index + 2] == best:
                    made.append("".join(best))
                    index += 2
                else:
                    made.append(word[index])
                    index += 1
            merged[tuple(made)] = merged.get(tuple(made), 0) + count
        words = merged
    return merges


def described(content: str, **more) -> dict:
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False} | more


def folder(padding: str | dict) -> dict[str, File]:
    merges = trained()
    letters = byte_letters()
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in merges] + [START, END]
    special = {"bos_token": described(START), "eos_token": described(END), "unk_token": described(END)}
    special["pad_token"] = padding
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": LENGTH, "do_lower_case": True}
    lines = "".join(f"{one} {other}\n" for one, other in merges)
    return {
        "vocab.json": ({token: number for number, token in enumerate(tokens)}, {}),
        "merges.txt": (f"#version: 0.2\n{lines}".encode(), {}),
        "special_tokens_map.json": (special, {}),
        "tokenizer_config.json": (config, {}),
    }


def expected(tokenizer: CLIPTokenizer, texts: list[str]) -> dict:
    """What the pipelines of diffusers feed their encoders, and what they say is cut off."""
    made = []
    for text in texts:
        ids = tokenizer(text, padding="max_length", max_length=LENGTH, truncation=True).input_ids
        whole = tokenizer(text).input_ids
        cut_off = tokenizer.decode(whole[LENGTH - 1 : -1]) if len(whole) > LENGTH else None
        used = len(ids)
        while used > 1 and ids[used - 1] == tokenizer.pad_token_id:
            used -= 1
        assert len(ids) == LENGTH
        made.append({"text": text, "ids": ids[:used], "padding": tokenizer.pad_token_id, "cut_off": cut_off})
    sentence, times = LONG
    whole = tokenizer(sentence * times).input_ids
    digest = hashlib.sha256(b"".join(number.to_bytes(8, "little") for number in whole)).hexdigest()
    return {"texts": made, "long": {"sentence": sentence, "times": times, "tokens": len(whole), "sha256": digest}}


def loaded(files: dict[str, File]) -> tuple[CLIPTokenizer, dict[str, File], CLIPTokenizer]:
    """The tokenizer of a folder, the folder that transformers writes of it, and the tokenizer of that."""
    with tempfile.TemporaryDirectory() as work:
        first, second = Path(work, "first"), Path(work, "second")
        first.mkdir()
        for name, file in files.items():
            (first / name).write_bytes(encode(name, file))
        tokenizer = CLIPTokenizer.from_pretrained(first)
        tokenizer.save_pretrained(second)
        saved = {path.name: (path.read_bytes(), {}) for path in sorted(second.iterdir())}
        return tokenizer, saved, CLIPTokenizer.from_pretrained(second)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    def cases():
        # As in Stable Diffusion 1, in SDXL's second tokenizer, and as transformers 5 writes the latter.
        for name, padding in [("padded-with-end", described(END)), ("padded-with-token", "!")]:
            files = folder(padding)
            tokenizer, saved, again = loaded(files)
            texts = TEXTS + (random_texts() if name == "padded-with-end" else [])
            yield name, files | {"expected.json": (expected(tokenizer, texts), {})}, f"{len(texts)} texts"
        yield "one-file", saved | {"expected.json": (expected(again, TEXTS), {})}, f"{len(TEXTS)} texts"

    return write(FOLDER, cases(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
