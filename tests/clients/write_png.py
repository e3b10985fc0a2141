"""Writes a PNG of columns in grey, of 8 bits and three channels: write_png.py PATH WIDTHxHEIGHT

Row by row, so that it also makes the pictures that a server should refuse.
"""

import struct
import sys
import zlib

path, size = sys.argv[1:]
width, height = map(int, size.split("x"))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


row = b"\0" + bytes((x * 7) % 256 for x in range(width) for _ in range(3))
compressor = zlib.compressobj(9)
data = b"".join(compressor.compress(row) for _ in range(height)) + compressor.flush()
with open(path, "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
    file.write(chunk(b"IDAT", data) + chunk(b"IEND", b""))
