"""Puts the columns of several files together, for which programs have written other types."""

from collections.abc import Iterable

import pyarrow as pa
from datasets import ClassLabel, Features


# From coarse to fine
UNITS = ("s", "ms", "us", "ns")


def common_features(schemas: Iterable[tuple[str, pa.Schema]]) -> Features:
    """
    Returns the columns of files, given by their names and schemas, with types that hold the values of all. Raises a
    `ValueError` that names two files and their column if no type holds the values of both.
    """
    found, first = Features(), {}
    for file, schema in schemas:
        for name, feature in Features.from_arrow_schema(schema).items():
            before = found.setdefault(name, feature)
            first.setdefault(name, file)
            if before == feature:
                continue
            one, other = (Features({name: each}).arrow_schema.field(name).type for each in (before, feature))
            kind = common_type(one, other)
            # The same numbers stand for different names.
            if kind is None or isinstance(before, ClassLabel) or isinstance(feature, ClassLabel):
                raise ValueError(
                    f"{first[name]} and {file}: the column {name!r} is {describe(before)} in one, and "
                    f"{describe(feature)} in the other: write it alike in all files."
                )
            found[name] = Features.from_arrow_schema(pa.schema([(name, kind)]))[name]
    return found


def describe(feature: object) -> str:
    """Returns a short name of the type of a column."""
    if isinstance(feature, ClassLabel):
        return f"numbers of the classes {', '.join(feature.names)}"
    return str(Features({"": feature}).arrow_schema.field("").type)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """
    Returns a type that holds the values of two others, None if there is none. Times with and without a zone have none,
    and neither have floats of fewer than 64 bits and others, which would have other decimals.
    """
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz and other.tz:
        return pa.timestamp(max(one.unit, other.unit, key=UNITS.index), "UTC")
    if any(kind in (pa.float16(), pa.float32()) for kind in (one, other)) and pa.null() not in (one, other):
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (one, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("").type
    except pa.ArrowTypeError:
        return None


def cast_columns(table: pa.Table, features: Features, file: str) -> pa.Table:
    """Returns a table with columns of these types. Raises a `ValueError` that names the file and a column."""
    types = features.arrow_schema
    for number, field in enumerate(table.schema):
        if (kind := types.field(field.name).type) != field.type:
            try:
                table = table.set_column(number, field.name, table[field.name].cast(kind))
            except pa.ArrowInvalid as problem:
                raise ValueError(
                    f"{file}: the column {field.name!r} is {field.type}, in other files {kind}, which cannot hold its "
                    f"values ({problem}): write it alike in all files."
                ) from None
    return table.replace_schema_metadata(types.metadata)
