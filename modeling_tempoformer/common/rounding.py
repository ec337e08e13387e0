"""Rounds numbers."""


def round_between(low: float, high: float) -> float:
    """Returns the middle of two numbers, rounded to as few digits as leave it in the middle half of the two."""
    middle, digits = (low + high) / 2, 1
    while abs(round(middle, digits) - middle) > (high - low) / 4 and digits < 17:
        digits += 1
    return float(round(middle, digits))
