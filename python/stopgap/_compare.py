"""``stopgap compare``: is it different, by how much, how sure?"""

from . import _stopgap
from ._document import Document
from ._words import Words, call, integer, listed, paths, share, text


class Comparison(Document):
    """Two sides held against each other: runs (``stopgap.compare/1``), or traces (``stopgap.moved/1``)."""

    @property
    def verdict(self):
        """The answer: a dictionary of `word` and `text`."""
        return self._part("verdict")

    @property
    def figures(self):
        """A row a figure: `name`, `unit`, `before`, `after`, the effect with its interval, `p`, and a `word`."""
        return self._table("figures")

    @property
    def environment(self):
        """In what the machines of the sides differ: `what`, `before`, `after`."""
        return self._table("environment")

    @property
    def warnings(self):
        """Doubts, the most important first: a list of str."""
        return self._part("warnings")

    def __repr__(self):
        return f"<stopgap.Comparison of {self._name}: {self.verdict['text']}>"


def compare(
    before, after, *, margin=None, endpoint=None, question=None, series=None, threshold=None, unit=None, per=None, seed=None
):
    """Compares two sides: is it different, by how much, how sure?

    `before`, `after`: a file, a directory (all files in it), or a list of them: run records, results of other tools, a number per
    line, or traces. The unit of evidence is a file: fewer than 5 a side prove nothing about two figures.
    `margin`: a change by less than this share, 0 to 1, is none (0.05). `endpoint`: the figures to test, chosen before you look.
    `question`, `series`: which of several in a file. `threshold`: from how many nanoseconds on a sample is a stall. `unit`: ``"ns"`` or
    ``"us"`` where a file does not say. `per`: of traces: ``"run"``, ``"second"``, ``"roundtrip"`` or a request. `seed`: of arrangements
    and intervals (1).

    The command is ``stopgap compare --before FILE... --after FILE...``; as the command it takes settings from ``stopgap.toml`` in the
    working directory. Raises :class:`stopgap.Error`.
    """
    sides = paths("before", before), paths("after", after)
    words = Words("compare")
    words.flag("--margin", share, "margin", margin)
    words.flag("--endpoint", lambda name, value: listed(text, name, value), "endpoint", endpoint)
    words.flag("--question", text, "question", question)
    words.flag("--series", text, "series", series)
    words.flag("--threshold", lambda name, value: f"{integer(name, value)}ns", "threshold", threshold)
    words.flag("--unit", text, "unit", unit)
    words.flag("--per", text, "per", per)
    words.flag("--seed", integer, "seed", seed)
    words.extend(["--json", "--no-record"])
    if [len(side) for side in sides] == [1, 1]:
        words.operands([side[0] for side in sides])
    else:
        for option, side in zip(("--before", "--after"), sides):
            # A name that begins with a dash would be a flag; below the working directory it is the same file.
            words += [option, *(f"./{name}" if name.startswith("-") else name for name in side)]
    return Comparison(call(_stopgap.compare, words), " and ".join(side[0] for side in sides))


def ministat(*files, column=None, confidence=None, delimiters=None, plot=True, width=None):
    """Compares files with a number per line as FreeBSD's ministat does, and returns what it prints.

    `files`: one to seven of them. `column`: which column, from 1. `confidence`: of the test, per cent: 80, 90, 95, 98, 99 or 99.5
    (95). `delimiters`: characters between columns (space and tab). `plot`: whether to draw; `width`: in so many columns (74).

    The command is ``stopgap ministat``. Raises :class:`stopgap.Error`.
    """
    if not files:
        raise TypeError("files: give at least one")
    if not isinstance(plot, bool):
        raise TypeError(f"plot must be a bool, not {type(plot).__name__}")
    named = [path for at, file in enumerate(files) for path in paths(f"files[{at}]", file)]
    words = Words("ministat")
    if column is not None:
        words += ["-C", integer("column", column, 1)]
    if confidence is not None:
        if isinstance(confidence, bool) or confidence not in (80, 90, 95, 98, 99, 99.5):
            raise ValueError(f"confidence must be 80, 90, 95, 98, 99 or 99.5, not {confidence!r}")
        words += ["-c", str(confidence)]
    if delimiters is not None:
        words += ["-d", text("delimiters", delimiters)]
    if not plot:
        words.append("-A")
    words += ["-w", integer("width", 74 if width is None else width, 2, 10_000)]
    words.operands(named)
    return call(_stopgap.ministat, words)
