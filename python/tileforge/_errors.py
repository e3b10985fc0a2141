"""What can go wrong, by what a caller can do about it."""


class TileforgeError(Exception):
    """An error of this package. Its text says what was expected and what was found."""


class InvalidInput(TileforgeError, ValueError):
    """The input is invalid: give something else."""


class DoesNotFit(TileforgeError):
    """The engine or request fits no device or its memory: take another engine or device."""


class Busy(TileforgeError):
    """Too many requests wait: try again later."""


class Cancelled(TileforgeError):
    """The request was cancelled."""


class DeadlineExceeded(TileforgeError, TimeoutError):
    """The request's time was over."""


class Failed(TileforgeError):
    """An internal failure: the text says where it failed."""
