"""Results of requests that are not finished yet."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tileforge._errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tileforge import _native

Result = TypeVar("Result")


class Future(concurrent.futures.Future[Result], Generic[Result]):
    """The result of a submitted request.

    It is one of `concurrent.futures`, for `wait` and `as_completed`, and it can be awaited. What `add_done_callback`
    calls runs on one thread of this package for all futures, so it should be short.
    """

    def __init__(self, request: "_native.Request", convert: Callable[[Any], Result]) -> None:
        super().__init__()
        self._request = request
        self._convert = convert
        request.then(self._finish)

    def cancel(self) -> bool:
        """Cancels the request, also while it runs: its run ends after the node that is being computed.

        Returns:
            Whether it is cancelled; `False` if there was a result before. `result()` of a cancelled request raises
            `concurrent.futures.CancelledError`.
        """
        was = self.cancelled()
        if not super().cancel():
            return False
        if not was:
            self._request.cancel()
            # Notifies callers that wait for several futures.
            self.set_running_or_notify_cancel()
        return True

    @property
    def progress(self) -> tuple[int, int | None]:
        """Parts that are done, and all parts: tiles, steps, frames. All parts are `None` until its turn comes."""
        return self._request.progress()

    def previews(self) -> "list[tuple[int, NDArray[np.uint8]]]":
        """The previews since the last call, where `submit_generate` was given `preview_every`.

        Returns:
            For each, the evaluations of the network that were done, and the first picture, `[height, width, 3]`.
        """
        from tileforge import _arrays

        return [(done, _arrays.shaped(picture)) for done, picture in self._request.previews()]

    def __await__(self) -> Generator[Any, None, Result]:
        """Awaits the result. A task that is cancelled cancels the request."""
        return asyncio.wrap_future(self).__await__()

    def __reduce__(self) -> Any:
        raise InvalidInput("a future cannot be pickled: the request runs in this process")

    def _finish(self, request: "_native.Request") -> None:
        if self.cancelled():
            return
        try:
            result = self._convert(request.take())
        except BaseException as error:
            self._set(self.set_exception, error)
        else:
            self._set(self.set_result, result)

    @staticmethod
    def _set(setter: Callable[[Any], None], value: Any) -> None:
        try:
            setter(value)
        except concurrent.futures.InvalidStateError:
            # It was cancelled at this moment.
            pass
