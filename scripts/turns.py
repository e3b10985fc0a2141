"""Ways to compute the same thing, timed in turns: load on a shared machine changes from one second to the next, and so meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Output = TypeVar("Output")

# Threads of a session go on looking for work after a run for some time: the next way's run may not meet that.
SETTLING = 0.03


def take_turns(ways: Mapping[str, Callable[[], Output]], runs: int) -> tuple[dict[str, Output], dict[str, list[float]]]:
    """What each way gives in a first round, which warms up, and its seconds in each of the rounds after it."""
    outputs = {way: compute() for way, compute in ways.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, compute in ways.items():
            time.sleep(SETTLING)
            begin = time.perf_counter()
            compute()
            times[way].append(time.perf_counter() - begin)
    return outputs, times


def ratios(times: Mapping[str, list[float]], ours: str) -> dict[str, float]:
    """The time of one way over that of each other: the median of the rounds."""
    others = {way: other for way, other in times.items() if way != ours}
    return {way: statistics.median(one / two for one, two in zip(times[ours], other)) for way, other in others.items()}
