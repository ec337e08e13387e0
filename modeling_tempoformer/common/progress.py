"""Tells in the log how far a long work is."""

import logging
import math
import time


logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 60


class Progress:
    """
    The share of a work that is done and the minutes that are left, in the log at most once a minute; the number of
    parts that are done where the total is not known.
    """

    def __init__(self, description: str, total: float = math.inf):
        """Begins a work of `total` parts of any unit."""
        self.description, self.total, self.done = description, total, 0.0
        self.begun = self.last_line = time.perf_counter()

    @property
    def minutes_left(self) -> float:
        """The minutes that are left if the work goes on as fast as so far, once some of it is done."""
        return (time.perf_counter() - self.begun) * (self.total / self.done - 1) / 60

    def add(self, done: float):
        """Counts parts that were done."""
        self.done += done
        if 0 < self.done < self.total and time.perf_counter() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = time.perf_counter()
            if math.isinf(self.total):
                logger.info(f"{self.description}: {self.done:,.0f} so far.")
                return
            share, minutes = 100 * self.done / self.total, max(1, round(self.minutes_left))
            logger.info(f"{self.description}: {share:.0f} % done, minutes left: {minutes}.")
