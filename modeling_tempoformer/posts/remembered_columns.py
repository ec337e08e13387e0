"""
Names of columns that a model's folder remembers. Who has named the columns of the training posts need not name them
again for posts that are predicted, shown or scored.
"""

import logging
from collections.abc import Collection
from dataclasses import fields

from .arguments import TableArguments
from .columns import NO_COLUMN, column_of_role
from .splits import COLUMNS, read_record
from .tables import find_files, read_tables


logger = logging.getLogger(__name__)

# Groups and units of a split are asked for by each run.
ROLES = ("timeline", "timestamp", "text", "label", "id", "speaker", "state", "annotator")


def named_columns(arguments: TableArguments) -> dict[str, str]:
    """Returns the names of columns by role, as far as they are not the usual ones."""
    usual = {field.name: field.default for field in fields(arguments)}
    named = {role: getattr(arguments, f"{role}_column", None) for role in ROLES}
    return {role: name for role, name in named.items() if name is not None and name != usual[f"{role}_column"]}


def recall_columns(arguments: TableArguments, model: str | None, path: str | None, given: Collection[str]):
    """
    Sets the names of columns as they were in the training of a model, where the options are not given and the file has
    such a column, and logs them.

    Args:
        arguments ([`TableArguments`]): The arguments, which are changed.
        model (`str`, *optional*): The folder of the model. A model of the Hub remembers nothing.
        path (`str`, *optional*): The first file of posts, or a pattern of files. Without one nothing is changed.
        given (`Collection[str]`): The options of the command line ([`~common.command_line.options_given`]).
    """
    remembered = read_record(model)[1].get(COLUMNS, {})
    own = {role for role in ROLES if f"{role}_column" in given} | named_columns(arguments).keys()
    wanted = {
        role: name for role, name in remembered.items() if role not in own and hasattr(arguments, f"{role}_column")
    }
    if arguments.one_timeline:
        wanted.pop("timeline", None)
    if path is None or not wanted:
        return
    first, *_ = find_files(path)
    pieces = read_tables(first, arguments.records, list(wanted.values()), arguments.one_timeline, True)
    present = next(pieces).column_names
    found = {
        role: name
        for role, name in wanted.items()
        if name == NO_COLUMN or column_of_role(present, role, name) is not None
    }
    for role, name in found.items():
        setattr(arguments, f"{role}_column", name)
    if found:
        shown = ", ".join(f"--{role}_column {name}" for role, name in found.items())
        logger.info("Columns as in the training of %s: %s.", model, shown)
