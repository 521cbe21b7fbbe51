"""What all documents of the command have in common."""

import html
import json

#: Columns of a text without a terminal, as the command's in a pipe.
WIDTH = 120

#: Height of a page in a notebook, in CSS pixels.
HEIGHT = 640


class Document:
    """A document of the command: JSON, a text for people, a page with pictures."""

    def __init__(self, inner, name):
        self._inner = inner
        self._name = name
        self._dict = None

    def to_json(self):
        """Returns the document as the command prints it with ``--json``, byte for byte, without the line feed at its end."""
        return self._inner.json()

    def to_dict(self):
        """Returns what :meth:`to_json` parses to. The dictionary is the caller's own."""
        return json.loads(self._inner.json())

    def _part(self, name):
        if self._dict is None:
            self._dict = self.to_dict()
        return self._dict[name]

    def _table(self, name):
        from ._table import Table

        return Table(self._inner.table(name))

    def to_text(self, verbose=False, width=WIDTH):
        """Returns what the command shows on a terminal of `width` columns (40 to 10,000), without colours.

        `verbose`: with the evidence below the answer.
        """
        from ._words import integer

        if not isinstance(verbose, bool):
            raise TypeError(f"verbose must be a bool, not {type(verbose).__name__}")
        return self._inner.text(int(integer("width", width, 40, 10_000)), verbose)

    def to_html(self):
        """Returns the page that ``stopgap report`` makes of it: it loads nothing and runs nothing."""
        return self._inner.page(self._name)

    def __str__(self):
        return self.to_text().rstrip("\n")

    def _repr_html_(self):
        page = html.escape(self.to_html(), quote=True)
        style = f"width:100%;height:{HEIGHT}px;border:0"
        return f'<iframe sandbox="" title="{html.escape(self._name, quote=True)}" style="{style}" srcdoc="{page}"></iframe>'
