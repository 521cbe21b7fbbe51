"""The events of a trace."""

from . import _stopgap
from ._table import Table
from ._words import listed, path, text


def read_trace(trace, *, columns=None):
    """Reads a trace into a table: a row an event, with the columns of docs/schema/stopgap.trace-2.md.

    `trace`: a trace of any form that the command reads; switches and wake-ups of old ones come as waits. `columns`: names of those to
    keep, in that order; all of them where none is given, those without a value too.

    Memory: the values of all events at once. A column costs 4 or 8 bytes an event where any of 65,536 has it, texts their length.
    Raises :class:`stopgap.Error`.
    """
    name = path("trace", trace)
    named = listed(text, "columns", columns).split(",") if columns is not None else []
    known = _stopgap.columns()
    for column in named:
        if column not in known:
            raise ValueError(f"columns: a trace has no {column!r}; there are {', '.join(known)}")
    return Table(_stopgap.read_trace(name, named)[0])
