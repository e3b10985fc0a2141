"""Times several ways to compute the same thing, in turns, so that the load of a shared machine affects all alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Output = TypeVar("Output")

# Seconds between runs. A session's threads look for work for some time after a run, which would slow down the next.
SETTLING = 0.03


def take_turns(ways: Mapping[str, Callable[[], Output]], runs: int) -> tuple[dict[str, Output], dict[str, list[float]]]:
    """The output of each way in a first round, which is the warm-up, and its seconds in each later round."""
    outputs = {way: compute() for way, compute in ways.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        # What one leaves behind, as threads that look for work, meets each of the others.
        for way in random.sample(list(ways), len(ways)):
            time.sleep(SETTLING)
            begin = time.perf_counter()
            ways[way]()
            times[way].append(time.perf_counter() - begin)
    return outputs, times


def ratios(times: Mapping[str, list[float]], ours: str) -> dict[str, float]:
    """The time of one way over that of each other way: the median of the rounds."""
    others = {way: other for way, other in times.items() if way != ours}
    return {way: statistics.median(one / two for one, two in zip(times[ours], other)) for way, other in others.items()}
