"""Exchanges two folders in one step, as the builder does with a finished engine: exchange_folders.py ONE OTHER"""

import ctypes
import os
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2

one, other = (os.fsencode(path) for path in sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) != 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
