"""Tables: an Arrow table with a few conveniences that need no other library."""

import html
import json

#: Rows that a notebook shows.
SHOWN = 20


class Table:
    """Rows in columns, for any library that knows Arrow's PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)``,
    ``pandas.DataFrame.from_arrow(t)``, ``duckdb.sql("from t")``. Nothing is copied.
    """

    def __init__(self, inner):
        self._rows = inner

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self):
        return self._rows.__arrow_c_schema__()

    def __len__(self):
        return len(self._rows)

    @property
    def column_names(self):
        """Names of the columns, in their order."""
        return self._rows.column_names

    def to_pylist(self):
        """Returns the rows as a list of dictionaries."""
        return json.loads(self._rows.json(0, len(self)))

    def to_arrow(self):
        """Returns a ``pyarrow.Table`` of the same memory. Needs pyarrow, which nothing else here does."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("to_arrow() needs pyarrow: pip install pyarrow") from error
        return pyarrow.table(self)

    def __repr__(self):
        return f"<stopgap.Table: {len(self):,} rows of {', '.join(self.column_names)}>"

    def _repr_html_(self):
        rows = json.loads(self._rows.json(0, SHOWN))
        names = [name for name in self.column_names if any(row.get(name) is not None for row in rows)]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
            for row in rows
        )
        left = len(self) - len(rows)
        more = f"<p>and {left:,} rows more</p>" if left else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)
