"""Tables as text in columns."""


def printable(text: str) -> str:
    """Text with what is no visible character written out: a newline breaks a table, and a terminal obeys others."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def format_table(rows: list[dict]) -> str:
    """Rows as text in columns; numbers to three digits."""
    cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in rows]
    cells = [[printable(cell) for cell in row] for row in (list(rows[0]), *cells)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
