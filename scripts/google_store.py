#!/usr/bin/env python3
"""Serves Google's emulator of its object store (https://github.com/googleapis/storage-testbench).

    PYTHON scripts/google_store.py PORT

PYTHON is that of an environment with the emulator (`pip install FOLDER` of its repository). The emulator's XML
interface leaves out the headers ETag and Last-Modified, which the real store sends and clients need: they are added.
"""

import hashlib
import sys
from wsgiref.handlers import format_date_time

import testbench
import waitress

store = testbench.run()
began = format_date_time(0)


def complete(environ, start_response):
    def start(status, headers, exc_info=None):
        names = {name.lower(): value for name, value in headers}
        # An object changes with its generation; an answer to a write has none.
        text = names.get("x-goog-generation", "") + environ["PATH_INFO"]
        added = {"ETag": f'"{hashlib.md5(text.encode()).hexdigest()}"', "Last-Modified": began}
        missing = [(name, value) for name, value in added.items() if name.lower() not in names]
        return start_response(status, headers + missing, exc_info)

    return store(environ, start)


waitress.serve(complete, host="127.0.0.1", port=int(sys.argv[1]), threads=4)
