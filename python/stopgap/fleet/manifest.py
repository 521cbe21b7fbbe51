"""The manifest: one Parquet table of all traces below a directory or a prefix."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _words
from .store import FleetError, Store

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder, below the traces, of the manifest and of results.
FOLDER = "_stopgap"

MANIFEST = "manifest.parquet"

#: How a Parquet file begins and ends.
MAGIC = b"PAR1"

#: Bytes at an object's end that the first request reads: the footer of nearly all traces is smaller.
TAIL = 64 << 10

#: Requests at a time.
REQUESTS = 16


#: What `stopgap.identity` says of a trace, and which of it are numbers.
IDENTITY = (
    "trace_id",
    "host",
    "kernel",
    "kernel_release",
    "architecture",
    "cpu",
    "cpus",
    "memory_bytes",
    "hypervisor",
    "device",
    "devices",
    "disks",
    "program",
    "command",
    "date",
    "boot_id",
    "clock",
    "stopgap",
    "lost_events",
    "labels",
)
NUMBERS = ("cpus", "memory_bytes", "lost_events")


def identity_fields() -> list[pa.Field]:
    """Returns the columns that say which trace it is and where it comes from. Null means unknown."""
    import pyarrow as pa

    return [pa.field(name, pa.int64() if name in NUMBERS else pa.string()) for name in IDENTITY]


def manifest_schema() -> pa.Schema:
    """Returns the columns of the manifest."""
    import pyarrow as pa

    text = pa.string()
    file = [pa.field("path", text), pa.field("size", pa.int64()), pa.field("etag", text)]
    return pa.schema([*file, *identity_fields(), pa.field("error", text)])


@dataclass(frozen=True)
class Index:
    """All traces below a directory or a prefix, by name.

    Attributes:
        url: the directory or prefix.
        table: the manifest, an Arrow table with a row a trace: `path` (below `url`), `size` (bytes), `etag`, the identity, and
            `error` where the file cannot be read.
        path: where the manifest lies.
        read: how many files this call looked into; the others were known from the call before.
    """

    url: str
    table: pa.Table
    path: str
    read: int = 0

    def __len__(self) -> int:
        return self.table.num_rows

    def __repr__(self) -> str:
        broken = self.table.num_rows - self.table["error"].null_count
        size = sum(self.table["size"].to_pylist()) / 1e6
        return f"{len(self):,} traces in {self.url}, {size:,.1f} MB; {self.read:,} were new, {broken:,} cannot be read: {self.path}"


def index(url: str | os.PathLike[str], *, out: str | os.PathLike[str] | None = None) -> Index:
    """Makes one table of all traces (`*.parquet`) below a directory or a prefix.

    A second call reads only files whose size or etag (locally: time of change) is new. A file's footer is read, some 10 to 60 KB.
    Files and folders that begin with `_` or `.`, and Parquet files that are no traces, are left out.

    Args:
        url: `/dir`, `s3://bucket/prefix` or another URL that fsspec knows.
        out: where the manifest goes; default is the folder `_stopgap` below `url`.

    Raises:
        FleetError: there is no trace, two files are one trace, a trace is of a version that is not read, or the store refuses.
            Nothing is written then.
    """
    found, is_new = scan("url", url, out)
    if is_new:
        save(found)
    return found


def scan(name: str, url: Any, out: Any) -> tuple[Index, bool]:
    """Does what `index` does, and writes nothing: says whether the manifest there is another. `name` is the argument of `url`."""
    store = Store(_words.path(name, url))
    home = Store(_words.path("out", out)) if out is not None else store.child(FOLDER)
    if store.local and not os.path.isdir(store.root):
        raise FleetError(f"{store.url}: no such directory; give the directory or prefix of the traces")
    try:
        files = store.files(".parquet")
    except FileNotFoundError:
        files = {}
    before = _rows(home) if files and home.exists(MANIFEST) else []
    known = {row["path"]: row for row in before if files.get(row["path"]) == (row["size"], row["etag"])}
    new = sorted(files.keys() - known.keys())
    with ThreadPoolExecutor(1 if store.local else REQUESTS) as threads:
        read = list(threads.map(lambda path: _row(store, path, *files[path]), new))
    rows = sorted([*known.values(), *(row for row in read if row is not None)], key=lambda row: row["path"])
    if not rows:
        raise FleetError(f"{store.url}: no traces (*.parquet) in it; record some with: stopgap record -o DIR/NAME.parquet -- CMD")
    seen: dict[str, str] = {}
    for row in rows:
        other = seen.setdefault(row["trace_id"], row["path"])
        if other != row["path"]:
            raise FleetError(f"{store.name(other)} and {store.name(row['path'])} are one trace (id {row['trace_id']}): remove one of them")
    import pyarrow as pa

    table = pa.Table.from_pylist(rows, schema=manifest_schema())
    return Index(store.url, table, home.name(MANIFEST), len(read)), any(read) or len(rows) != len(before)


def save(found: Index) -> None:
    """Writes the manifest."""
    Store(os.path.dirname(found.path)).write(MANIFEST, encoded(found.table))


def encoded(table: pa.Table) -> bytes:
    """Returns the bytes of a Parquet file; the same table gives the same bytes."""
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", write_statistics=True)
    return out.getvalue()


def _rows(home: Store) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(home.read(MANIFEST)))
        if not table.schema.equals(manifest_schema()):
            return []
    except pa.ArrowException:
        return []
    return table.to_pylist()


def _row(store: Store, path: str, size: int, etag: str) -> dict[str, Any] | None:
    """Returns a trace's row, `None` for a Parquet file that is no trace."""
    from stopgap import identity

    file = Ends(store, path, size)
    try:
        tail = file.tail()
        found = identity(file, name=store.name(path))
    except FileNotFoundError:
        return None  # removed since the listing
    except FleetError:
        raise
    except Exception as error:
        why = _foreign(tail)
        if why == "no trace":
            return None
        if why is not None:
            raise FleetError(f"{store.name(path)}: {why}; update stopgap, or move the file away") from None
        # Not from the time of change: a copy of the same damaged file has the same id.
        seal = hashlib.sha256(path.encode() + b"\0" + str(size).encode() + b"\0" + tail).hexdigest()
        text = " ".join(str(error).split())
        return {**dict.fromkeys(IDENTITY), "path": path, "size": size, "etag": etag, "trace_id": f"damaged-{seal[:24]}", "error": text}
    return {"path": path, "size": size, "etag": etag, "error": None, **{name: found[name] for name in IDENTITY}}


class Ends(io.RawIOBase):
    """An object whose footer is read by one or two requests, and nothing else unless it is asked for."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self.store, self.path, self.size, self.at = store, path, size, 0
        self.start, self.end = size, b""

    def tail(self) -> bytes:
        """Reads the footer, and returns the object's last bytes."""
        self._take(max(0, self.size - TAIL))
        if len(self.end) < (footer := _footer(self.end)) <= self.size:
            self._take(self.size - footer)
        return self.end

    def _take(self, start: int) -> None:
        self.end = self.store.read(self.path, start, self.size) if self.size else b""
        self.start = self.size - len(self.end)

    def read(self, count: int = -1) -> bytes:
        """Returns the next bytes."""
        last = self.size if count < 0 else min(self.size, self.at + count)
        if self.at >= self.start:
            data = self.end[self.at - self.start : last - self.start]
        elif self.at == 0 and self.end[-4:] == MAGIC:
            # A file that ends as Parquet begins so; readers ask for more than they need.
            data = MAGIC[:last]
        else:
            data = self.store.read(self.path, self.at, last)
        self.at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a place."""
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        """Returns the place."""
        return self.at

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True


def _footer(tail: bytes) -> int:
    """Returns the bytes of a Parquet file's footer; 0 where it has none."""
    return int.from_bytes(tail[-8:-4], "little") + 8 if tail[-4:] == MAGIC else 0


def _foreign(tail: bytes) -> str | None:
    """Says of a sound Parquet file that stopgap refuses what it is; `None` where the file is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = _footer(tail)
    if not 0 < footer <= len(tail):
        return None
    try:
        metadata = pq.read_metadata(io.BytesIO(MAGIC + tail[-footer:])).metadata or {}
    except (pa.ArrowException, OSError, ValueError):
        return None
    schema = metadata.get(b"stopgap.schema")
    if schema is None:
        return "no trace"
    if schema not in (b"stopgap.trace/1", b"stopgap.trace/2"):
        return f"a trace of another version, {schema.decode(errors='replace')}"
    return None
