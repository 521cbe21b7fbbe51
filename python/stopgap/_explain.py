"""``stopgap explain``."""

from . import _stopgap
from ._document import Document
from ._words import Words, call, integer, path, text


class Findings(Document):
    """What a trace shows: why its threads waited, and for whom.

    The tables: :attr:`stalls`, :attr:`waits`, :attr:`blame`, :attr:`round_trips`, :attr:`tasks`, :attr:`calls`. Their columns are
    named as the fields of the document (docs/schema/stopgap.explain-2.json).
    """

    @property
    def verdict(self):
        """The answer: a dictionary of `word` and `text`."""
        return self._part("verdict")

    @property
    def damaged(self):
        """Why the trace was not read to its end, or None. What comes before is explained."""
        return self._inner.damaged

    @property
    def trace(self):
        """Which trace: a dictionary of `source`, `clock`, `boot_id`, `events`, `duration_ns`, `cut_short`."""
        return self._part("trace")

    @property
    def losses(self):
        """What was lost when it was recorded: `lost` events (None: the trace does not say), their `share`, and more."""
        return self._part("losses")

    @property
    def advice(self):
        """What to try: a list of dictionaries of `word`, `text`, `evidence`."""
        return self._part("advice")

    @property
    def missing(self):
        """What the trace cannot say: a list of dictionaries of `what` and `why`."""
        return self._part("missing")

    @property
    def stalls(self):
        """The slowest operations, `top` of them: who (`task`, `tid`), in which `call`, since when (`begin_ns`) and for how long
        (`length_ns`; `excess_ns` without idle waits), and of what `parts` that time is made.
        """
        return self._table("stalls")

    @property
    def waits(self):
        """Waits of threads of one name for one thing: `cause`, how many `waits` of how many `threads`, `total_ns`, `longest_ns`,
        whether they lost time (`idleness`: stalled, may-be-idle, idle), and who or what was behind most of it. The most time first.
        """
        return self._table("waits")

    @property
    def blame(self):
        """Threads and things by how much of others' waiting (`ns`) they caused. A wait behind another counts with each."""
        return self._table("blame")

    @property
    def round_trips(self):
        """Pairs of threads that asked and answered each other: `client`, `server`, `roundtrips`, `switches`, `p50_ns`."""
        return self._table("round_trips")

    @property
    def tasks(self):
        """Threads by name: time on a CPU, ready for one, asleep, and of which the trace does not say."""
        return self._table("tasks")

    @property
    def calls(self):
        """Operations of a kind together: how many, how many stalls of 10 ms or more, and their time."""
        return self._table("calls")

    def __repr__(self):
        return f"<stopgap.Findings of {self._name}: {self.verdict['text']}>"


def explain(trace, *, top=None, frame_marker=None, request=None):
    """Explains a trace: who waited for what, and why.

    `trace`: a trace file of ``stopgap record``, JSON lines, or a text of ``perf script`` or ``trace-cmd report``.
    `top`: so many of the slowest operations, at most 10,000 (10).
    `frame_marker`: the event at which a frame ends: the name of a mark, a system call, or a kind of event.
    `request`: how a request begins and ends: ``"write..read"`` or ``"mark:begin..mark:end"``.

    The command is ``stopgap explain [--top=N] [--frame-marker=EVENT] [--request=BEGIN..END] --json TRACE``. It reads the trace
    once; memory grows with threads and causes, not with events. Raises :class:`stopgap.Error` where there is nothing to explain. A
    trace that is damaged later is explained up to there: see :attr:`Findings.damaged`.
    """
    name = path("trace", trace)
    words = Words("explain")
    words.flag("--top", lambda name, value: integer(name, value, 0, 10_000), "top", top)
    words.flag("--frame-marker", text, "frame_marker", frame_marker)
    words.flag("--request", text, "request", request)
    words.append("--json")
    words.operands([name])
    return Findings(call(_stopgap.explain, words), name)
