"""Requests with the server's progress bar; the server's interrupt cancels them."""

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Any

import comfy.model_management
import comfy.utils
from PIL import Image

import tileforge

# Seconds between two looks at the interrupt and at the progress.
_LOOK = 0.05
# Requests that run or wait at the same time. The engine makes its batches of them; each holds its picture in memory.
_IN_FLIGHT = 16
# The longer side of previews that are sent to the browser.
_PREVIEW_SIDE = 512

Submit = Callable[[], "tileforge.Future[Any]"]


def run(submissions: Sequence[Submit], take: Callable[[int, Any], None], *, has_bar: bool = True) -> None:
    """Sends requests, and gives each result to `take`, with its number.

    Args:
        submissions: Each sends one request, and raises `Busy` where there is no room for it.
        take: Called on this thread, in any order.
        has_bar: Whether the node's progress bar shows these requests.

    Raises:
        InterruptProcessingException: The user interrupted the server. All requests are cancelled.
    """
    bar = _Bar(len(submissions)) if has_bar else None
    pending: dict[tileforge.Future[Any], int] = {}
    sent = 0
    try:
        while pending or sent < len(submissions):
            comfy.model_management.throw_exception_if_processing_interrupted()
            while sent < len(submissions) and len(pending) < _IN_FLIGHT:
                try:
                    pending[submissions[sent]()] = sent
                except tileforge.Busy:
                    break
                sent += 1
            if not pending:
                # Other requests fill the engine's queue.
                time.sleep(_LOOK)
                continue
            done, _ = concurrent.futures.wait(pending, timeout=_LOOK, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in [one for one in pending if one in done]:
                take(pending[future], future.result())
                del pending[future]
            if bar is not None:
                bar.show(list(pending), finished=sent - len(pending))
    except BaseException:
        for future in pending:
            future.cancel()
        raise


class _Bar:
    """The progress of several requests with the same number of parts: tiles, steps or frames."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._parts: int | None = None
        self._shown: tuple[int, int] | None = None
        self._bar = comfy.utils.ProgressBar(requests)

    def show(self, pending: "list[tileforge.Future[Any]]", finished: int) -> None:
        """Shows how far the requests are."""
        looks = [future.progress for future in pending]
        previews = [picture for future in pending for _, picture in future.previews()]
        parts = [total for _, total in looks if total is not None]
        if self._parts is None and (parts or finished):
            # Requests that are finished at the first look have no parts to report: each counts as one part.
            self._parts = max(parts, default=1)
        if self._parts is None:
            return
        # A request may have more parts than the first one had: the bar never goes beyond its end.
        done = sum(min(done, self._parts) for done, total in looks if total is not None)
        shown = (finished * self._parts + done, self._requests * self._parts)
        if shown != self._shown or previews:
            preview = ("JPEG", Image.fromarray(previews[-1]), _PREVIEW_SIDE) if previews else None
            self._bar.update_absolute(*shown, preview)
            self._shown = shown
