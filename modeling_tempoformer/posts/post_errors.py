"""The error for a post of a table that cannot be read."""

from typing import Any


class PostError(ValueError):
    """
    Raised for a post that cannot be read.

    Args:
        row (`int`): Row of the post, counting from 0.
        column (`str`): Name of the bad column.
        value: The bad value.
        problem (`str`): The problem with the value.
        shard (`int`, *optional*): The shard of a stream that the row is in, counting from 0.
    """

    def __init__(self, row: int, column: str, value: Any, problem: str, shard: int | None = None):
        super().__init__(row, column, value, problem, shard)
        self.row, self.column, self.value, self.problem, self.shard = row, column, value, problem, shard

    def __str__(self) -> str:
        row = f"{name_row(self.row, self.shard)} (counting from 0)"
        return f"{row}, column '{self.column}', value {self.value!r}: {self.problem}."


def name_row(row: int, shard: int | None) -> str:
    """Returns the name of a row of a table, or of a shard of a stream, for errors."""
    return f"Row {row}" if shard is None else f"Row {row} of shard {shard}"
