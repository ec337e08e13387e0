"""Divides values by timeline, and writes tables of pandas: as tables of Arrow, for Parquet files, and as texts."""

from collections.abc import Sequence, Sized

import numpy as np
import pandas as pd
import pyarrow as pa


def to_arrow(table: pd.DataFrame) -> pa.Table:
    """Returns a table for a Parquet file. All texts have one type, whatever the version of pandas calls them."""
    columns = pa.Table.from_pandas(table, preserve_index=False)
    types = {
        field.name: pa.string() if pa.types.is_large_string(field.type) else field.type for field in columns.schema
    }
    return columns.cast(pa.schema(types, columns.schema.metadata))


def to_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of cells, the names of the columns first, as a table in plain text."""
    (_, *columns), *body = rows
    return pd.DataFrame([row[1:] for row in body], [row[0] for row in body], columns).to_string()


def split_values(groups: Sequence[Sized], values: np.ndarray) -> list[np.ndarray]:
    """
    Returns the values of each group, such as a timeline.

    Args:
        groups (`Sequence[Sized]`): Groups of posts.
        values (`np.ndarray` of shape `(posts, ...)`): The values of the posts of all groups, in their order.
    """
    return np.split(values, np.cumsum(list(map(len, groups)))[:-1])
