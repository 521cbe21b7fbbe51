"""``stopgap replay``: what if."""

import os

from . import _stopgap
from ._document import Document
from ._table import Table
from ._words import Words, call, integer, listed, path, text

#: A larger batch fills a socket's buffer, which is not modelled.
MOST_BATCH = 256


class Replay(Document, Table):
    """A replay: a table of rows, one a policy and workload, and the command's record around it.

    Counts and ratios are the same on every machine; ``ns_per_operation``, ``spread``, ``driver_ns`` and ``worst_ns`` of placement are
    measured where it runs.
    """

    def __init__(self, inner, name):
        Document.__init__(self, inner, name)
        Table.__init__(self, inner.table("rows"))

    @property
    def growth(self):
        """How figures grow over N, a row a policy and quantity; no row where there are fewer than three N."""
        return self._table("growth")

    def __repr__(self):
        return f"<stopgap.Replay of {self._name}: {len(self):,} rows of {', '.join(self.column_names)}>"


def replay_placement(
    workload, *, policies=None, n=None, seed=None, ops=None, direction=None, pid=None, memory=None
):
    """Carries a workload or a recorded trace out by policies that choose addresses: what would mapping memory have cost, and
    how well packed would it be?

    `workload`: ``"pbobench"``, ``"agua"``, ``"freegap"``, ``"frag"``, ``"aligned"``, ``"limits"``, ``"tight"``, ``"many-sizes"``,
    ``"phases"``, ``"sequential"``, ``"all"``, or the path of a trace (a file of such a name: ``"./frag"``).
    `policies`: their names; all of them where none is given. `n`: the workload's size or sizes, in mappings. `seed`: of every random
    choice (1). `ops`: operations at each N, up to 100 million. `direction`: ``"top-down"`` or ``"bottom-up"``. `pid`: whose memory map
    of a trace. `memory`: what all policies may use, in bytes (a quarter of what is available, at most 2 GiB).

    The command is ``stopgap replay placement``. It takes seconds; some 100 bytes a live mapping and policy. Raises
    :class:`stopgap.Error`.
    """
    words = Words("replay", "placement")
    words.flag("--policy", _texts, "policies", policies)
    words.flag("--n", _numbers, "n", n)
    words.flag("--ops", integer, "ops", ops)
    words.flag("--seed", integer, "seed", seed)
    words.flag("--direction", text, "direction", direction)
    words.flag("--pid", integer, "pid", pid)
    words.flag("--memory", _size, "memory", memory)
    return _replay(words, "workload", workload)


def replay_chunks(
    scenario="thread", *, policies=None, n=None, seed=None, kernel=None, prices=None, size=None, device=None, access=None
):
    """Builds big buffers by policies that choose chunks: what would it have cost, and how well could the IOMMU map them?

    `scenario`: the name of a scenario, the file of a memory snapshot (``stopgap snapshot``), or a trace. `policies`: their names; all
    of them where none is given. `n`: buffers by each policy (50). `seed`: of every random choice (1). `kernel`: whose page allocator:
    ``"3.4"``, ``"3.14"`` or ``"6.12"``. `prices`: a file that ``stopgap probe chunks`` wrote. `size`: bytes of a buffer (4 MiB).
    `device`: page sizes of its IOMMU in bytes (4 KiB, 64 KiB, 2 MiB). `access`: orders in which the device reads: ``"linear"``,
    ``"rotate-90"``, ``"random"``.

    The command is ``stopgap replay chunks``; milliseconds in its rows are of the model. Raises :class:`stopgap.Error`.
    """
    words = Words("replay", "chunks")
    words.flag("--policy", _texts, "policies", policies)
    words.flag("--buffers", integer, "n", n)
    words.flag("--seed", integer, "seed", seed)
    words.flag("--kernel", text, "kernel", kernel)
    words.flag("--prices", path, "prices", prices)
    words.flag("--size", _size, "size", size)
    words.flag("--device", _sizes, "device", device)
    words.flag("--access", _texts, "access", access)
    return _replay(words, "scenario", scenario)


def replay_roundtrip(trace=None, *, policies=None, n=None, seed=None, client=None, server=None, work=None, batch=None):
    """Lets clients and servers talk by the wake-up rules of two kernels: how often would they switch?

    `trace`: a trace whose clients and servers are carried out as they were seen to talk, with what it counted beside the model's
    figures; None: the cells that the other arguments name. `policies`: ``"linux-2.6.35"``, ``"linux-6.12"``; both where none is given.
    `n`: round trips a row, up to a million (2,000). `seed`: of how much more or less each step takes (1). `client`: how it waits:
    ``"poll"``, ``"epoll"``, ``"read"``. `server`: ``"select"``, ``"poll"``, ``"epoll"``. `work`: the server's CPU time a request, in
    nanoseconds. `batch`: requests a write.

    The command is ``stopgap replay roundtrip``. Raises :class:`stopgap.Error`.
    """
    words = Words("replay", "roundtrip")
    words.flag("--policy", _texts, "policies", policies)
    words.flag("--round-trips", integer, "n", n)
    words.flag("--seed", integer, "seed", seed)
    words.flag("--client", _texts, "client", client)
    words.flag("--server", _texts, "server", server)
    words.flag("--work", _times, "work", work)
    words.flag("--batch", _batches, "batch", batch)
    return _replay(words, "trace", trace)


def _replay(words, argument, subject):
    question = words[1]
    given = []
    if subject is not None:
        given = [path(argument, subject)]
    words.extend(["--json", "--no-record"])
    words.operands(given)
    name = f"{question} {os.path.basename(given[0])}" if given else question
    return Replay(call(_stopgap.replay, words), name)


def _texts(name, value):
    return listed(text, name, value)


def _numbers(name, value):
    return listed(integer, name, value)


def _batches(name, value):
    return listed(lambda name, value: integer(name, value, 1, MOST_BATCH), name, value)


def _size(name, value):
    return integer(name, value, 1)


def _sizes(name, value):
    return listed(_size, name, value)


def _times(name, value):
    def time(name, value):
        return f"{integer(name, value)}ns"

    return listed(time, name, value)
