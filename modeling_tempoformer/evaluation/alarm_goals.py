"""Goals of alarms, as the option `--alarm` spells it: `precision=0.8`, `rate=0.05/30d`."""

import re
from dataclasses import dataclass


RISKS = ("rate", "missed")
KINDS = ("precision", "recall", *RISKS)
SPELLING = re.compile(rf"({'|'.join(KINDS)})=([^/]+?)(?:/([^/]+)d)?")


@dataclass(frozen=True)
class AlarmGoal:
    """
    A goal of the alarms of a class. The string of a goal is its spelling.

    Attributes:
        kind (`str`): `"precision"` and `"recall"` of the alarms on held-out posts; or a bound on a risk of new
            timelines: `"rate"`, the share of timelines without the class that have an alarm, and `"missed"`, the share
            of the changes to the class that have none.
        share (`float`): The least precision or recall, more than 0 and at most 1; the largest rate or share of missed
            changes, more than 0 and less than 1.
        days (`float`, *optional*): The length of the stretches of a timeline that a rate is about. By default it is
            about whole timelines.
    """

    kind: str
    share: float
    days: float | None = None

    def __str__(self) -> str:
        share, days = (str(number).removesuffix(".0") for number in (self.share, self.days))
        return f"{self.kind}={share}" if self.days is None else f"{self.kind}={share}/{days}d"

    @property
    def bounds_risk(self) -> bool:
        """True if the goal bounds a risk of new timelines."""
        return self.kind in RISKS

    @classmethod
    def read(cls, spelling: str) -> "AlarmGoal":
        """
        Reads a goal.

        Args:
            spelling (`str`): `"precision=0.8"`, `"recall=0.7"`, `"rate=0.05"`, `"rate=0.05/30d"` or `"missed=0.2"`.

        Raises a `ValueError` that lists the spellings, or names the wrong number.
        """
        try:
            kind, share, days = SPELLING.fullmatch(spelling).groups()
            goal = cls(kind, float(share), None if days is None else float(days))
        except (AttributeError, ValueError):
            raise ValueError(
                "--alarm is one of precision=0.8, recall=0.7, rate=0.05, rate=0.05/30d and missed=0.2, got "
                f"{spelling!r}."
            ) from None
        if not 0 < goal.share <= 1 or (goal.bounds_risk and goal.share == 1):
            most = "less than 1" if goal.bounds_risk else "at most 1"
            raise ValueError(f"--alarm {spelling}: the {kind} must be more than 0 and {most}.")
        if days is not None and (kind != "rate" or not 0 < goal.days < float("inf")):
            raise ValueError(f"--alarm {spelling}: only a rate has days, more than 0.")
        return goal
