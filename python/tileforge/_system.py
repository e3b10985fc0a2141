"""Differences between systems: names of libraries and programs, caches, and how a script starts a program."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

# A checker of types looks at one side of each of these conditions.
if sys.platform == "win32":
    import signal

    # ONNX Runtime's library in its package, and NVIDIA's in theirs: patterns.
    ONNXRUNTIME = "capi/onnxruntime.dll"
    NVIDIA = ("*/bin/x86_64", "*/bin")
    # How names of programs end.
    PROGRAM = ".exe"

    def caches() -> str | None:
        """The folder for data that can be made again; None if Windows names none."""
        folder = os.environ.get("LOCALAPPDATA", "")
        return folder if os.path.isabs(folder) else None

    def become(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        """Runs a program to its end, and ends as it does: a process of Windows cannot become another program."""
        for event in (signal.SIGINT, signal.SIGBREAK):
            # The program receives Ctrl-C, too, and decides.
            signal.signal(event, signal.SIG_IGN)
        sys.exit(subprocess.run([program, *arguments], env=environment, check=False).returncode)

else:
    ONNXRUNTIME = "capi/libonnxruntime.so*"
    NVIDIA = ("*/lib",)
    PROGRAM = ""

    def caches() -> str | None:
        """The user's folder for data that can be made again; None if the user has no home."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):
            home = os.path.expanduser("~")
            if not os.path.isabs(home):
                return None
            base = os.path.join(home, ".cache")
        return base

    def become(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        """Becomes a program."""
        os.execve(program, [program, *arguments], environment)
