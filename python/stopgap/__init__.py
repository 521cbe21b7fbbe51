"""Find the stall, name its cause, try the fix: traces of Linux machines, explained, replayed and compared.

The functions are those of the command ``stopgap``, with the same options, errors and documents. Tables are handed over
without a copy through Arrow's PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)``, ``duckdb.sql("from t")``.
Work is done without the GIL; Ctrl-C ends it. Times are nanoseconds, sizes bytes, unless a name says otherwise, and what is
unknown is ``None``, never 0.
"""

from ._compare import Comparison, compare, ministat
from ._explain import Findings, explain
from ._identity import identity
from ._replay import Replay, replay_chunks, replay_placement, replay_roundtrip
from ._stopgap import Error
from ._table import Table
from ._trace import read_trace
from ._words import Note

__all__ = [
    "Comparison",
    "Error",
    "Findings",
    "Note",
    "Replay",
    "Table",
    "compare",
    "explain",
    "identity",
    "ministat",
    "read_trace",
    "replay_chunks",
    "replay_placement",
    "replay_roundtrip",
]
