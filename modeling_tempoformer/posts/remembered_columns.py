"""
Names of columns that a model's folder remembers. Who has named the columns of the training posts need not name them
again for posts that are predicted, shown or scored.
"""

import logging

from ..common.columns import NEEDED, NO_COLUMN, USUAL, column_of_role, read_columns
from ..common.table_arguments import TableArguments
from .splits import COLUMNS, read_split_record
from .tables import find_files, read_tables


logger = logging.getLogger(__name__)

# Groups and units of a split are asked for by each run.
NOT_REMEMBERED = ("group", "split")


def named_columns(arguments: TableArguments) -> dict[str, str]:
    """Returns the names of columns by role, as far as they are not the usual ones."""
    named, usual = read_columns(arguments.columns, arguments.roles), NEEDED | USUAL
    if named.get("timeline") == NO_COLUMN:
        del named["timeline"]
    return {role: name for role, name in named.items() if role not in NOT_REMEMBERED and name != usual.get(role)}


def recall_columns(arguments: TableArguments, model: str | None, path: str | None):
    """
    Sets the names of columns as they were in the training of a model, where they are not given and the file has such a
    column, and logs them.

    Args:
        arguments ([`TableArguments`]): The arguments, which are changed.
        model (`str`, *optional*): The folder of the model. A model of the Hub remembers nothing.
        path (`str`, *optional*): The first file of posts, or a pattern of files. Without one nothing is changed.
    """
    remembered, given = read_split_record(model)[1].get(COLUMNS, {}), read_columns(arguments.columns, arguments.roles)
    wanted = {role: name for role, name in remembered.items() if role not in given and role in arguments.roles}
    if path is None or not wanted:
        return
    first, *_ = find_files(path)
    one_timeline = given.get("timeline") == NO_COLUMN
    pieces = read_tables(first, arguments.records, list(wanted.values()), one_timeline, True)
    present = next(pieces).column_names
    found = {
        role: name
        for role, name in wanted.items()
        if name == NO_COLUMN or column_of_role(present, role, name) is not None
    }
    arguments.columns = {**found, **given}
    if found:
        shown = " ".join(f"{role}={name}" for role, name in found.items())
        logger.info("Columns as in the training of %s: --columns %s.", model, shown)
