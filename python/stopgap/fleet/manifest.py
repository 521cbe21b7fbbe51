"""The manifest: one Parquet table of all traces below a directory or a prefix."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .store import FleetError, Scratch, Store

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder, below the traces, of the manifest and of results.
FOLDER = "_stopgap"

MANIFEST = "manifest.parquet"

#: Bytes at an object's end that the first request reads: the footer of nearly all traces is smaller.
TAIL = 64 << 10

#: Requests at a time.
REQUESTS = 16


def identity_fields() -> list[pa.Field]:
    """Returns the columns that say which trace it is and where it comes from. Null means unknown."""
    import pyarrow as pa

    text = pa.string()
    return [
        pa.field("trace_id", text),
        pa.field("host", text),
        pa.field("boot_id", text),
        pa.field("kernel", text),
        pa.field("kernel_version", text),
        pa.field("architecture", text),
        pa.field("cpu", text),
        pa.field("cpus", pa.int64()),
        pa.field("memory_bytes", pa.int64()),
        pa.field("hypervisor", text),
        pa.field("device", text),
        pa.field("program", text),
        pa.field("source", text),
        pa.field("start", pa.timestamp("us", "UTC")),
        pa.field("stopgap", text),
        pa.field("labels", pa.map_(text, text)),
    ]


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
    if not isinstance(url, (str, os.PathLike)):
        raise TypeError(f"url: a path or URL is expected, not {type(url).__name__}")
    import pyarrow as pa

    store = Store(url)
    home = Store(out) if out is not None else store.child(FOLDER)
    if store.local and not os.path.isdir(store.root):
        raise FleetError(f"{store.url}: no such directory; give the directory or prefix of the traces")
    try:
        files = store.files(".parquet")
    except FileNotFoundError:
        files = {}
    before: dict[str, dict[str, Any]] = {}
    if files and home.exists(MANIFEST):
        before = {row["path"]: row for row in _rows(home) if row["path"] in files}
    known = {path: row for path, row in before.items() if (row["size"], row["etag"]) == files[path]}
    new = sorted(files.keys() - known.keys())
    with Scratch() as folder, ThreadPoolExecutor(1 if store.local else REQUESTS) as threads:
        read = list(threads.map(lambda path: _row(store, path, *files[path], folder), new))
    rows = sorted([*known.values(), *(row for row in read if row is not None)], key=lambda row: row["path"])
    if not rows:
        raise FleetError(f"{store.url}: no traces (*.parquet) in it; record some with: stopgap record -o DIR/NAME.parquet -- CMD")
    seen: dict[str, str] = {}
    for row in rows:
        other = seen.setdefault(row["trace_id"], row["path"])
        if other != row["path"]:
            raise FleetError(f"{store.name(other)} and {store.name(row['path'])} are one trace (id {row['trace_id']}): remove one of them")
    table = pa.Table.from_pylist([{**row, "labels": list((row["labels"] or {}).items()) if isinstance(row["labels"], dict) else row["labels"]} for row in rows], schema=manifest_schema())
    data = encoded(table)
    if len(rows) != len(before) or read or len(known) != len(before):
        home.write(MANIFEST, data)
    return Index(store.url, table, home.name(MANIFEST), len(read))


def load(url: str | os.PathLike[str] | Index) -> Index:
    """Returns an index that was made before, of its traces' directory or prefix; makes it where there is none."""
    if isinstance(url, Index):
        return url
    return index(url)


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


def _row(store: Store, path: str, size: int, etag: str, folder: str) -> dict[str, Any] | None:
    """Returns a trace's row, `None` for a Parquet file that is no trace."""
    from stopgap import identity

    try:
        local, tail = _ends(store, path, size, folder)
    except FileNotFoundError:
        return None  # removed since the listing
    except OSError as error:
        raise FleetError(f"cannot read {store.name(path)}: {error.strerror}") from error
    try:
        found = identity(local)
    except Exception as error:
        text = " ".join(str(error).split()).replace(local, store.name(path))
        why = _foreign(tail)
        if why == "no trace":
            return None
        if why is not None:
            raise FleetError(f"{store.name(path)}: {why}; update stopgap, or move the file away") from None
        # Not from the time of change: a copy of the same damaged file has the same id.
        seal = hashlib.sha256(path.encode() + b"\0" + str(size).encode() + b"\0" + tail).hexdigest()
        empty = dict.fromkeys(field.name for field in identity_fields())
        return {**empty, "path": path, "size": size, "etag": etag, "trace_id": f"damaged-{seal[:24]}", "error": text}
    finally:
        if not store.local:
            os.unlink(local)
    return {"path": path, "size": size, "etag": etag, "error": None, **columns(found)}


def columns(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the identity columns of what `stopgap.identity` says."""
    from datetime import datetime

    row: dict[str, Any] = {field.name: found.get(field.name) for field in identity_fields()}
    row["trace_id"] = found["id"]
    row["kernel_version"] = found.get("kernel")
    row["kernel"] = (found.get("kernel") or "").split(" ")[0] or None
    labels = found.get("labels") or {}
    row["labels"] = sorted(labels.items())
    row["device"] = labels.get("device") or _machine(found)
    if found.get("program"):
        row["program"] = found["program"].rsplit("/", 1)[-1]
    start = found.get("start")
    row["start"] = datetime.fromisoformat(start.replace("Z", "+00:00")) if start else None
    return row


def _machine(found: dict[str, Any]) -> str | None:
    """Machines that are alike: CPU, how many, memory in GiB."""
    if not found.get("cpu"):
        return None
    parts = [found["cpu"]]
    if found.get("cpus"):
        parts.append(f"{found['cpus']} CPUs")
    if found.get("memory_bytes"):
        parts.append(f"{found['memory_bytes'] / 2**30:.0f} GiB")
    return ", ".join(parts)


def _ends(store: Store, path: str, size: int, folder: str) -> tuple[str, bytes]:
    """Returns a local file with the object's size, first bytes and footer, and the footer. The rest is a hole."""
    if store.local:
        with open(store.at(path), "rb") as file:
            file.seek(max(0, size - TAIL))
            tail = file.read()
            file.seek(max(0, size - _footer(tail)))
            return store.at(path), max(tail, file.read(), key=len)
    start = max(0, size - TAIL)
    tail = store.read(path, start, size) if size else b""
    footer = _footer(tail)
    if len(tail) < footer <= size:
        start = size - footer
        tail = store.read(path, start, size)
    local = os.path.join(folder, hashlib.sha256(path.encode()).hexdigest() + ".parquet")
    with open(local, "wb") as file:
        file.truncate(size)
        file.write(b"PAR1"[:size])
        file.seek(start)
        file.write(tail)
    return local, tail


def _footer(tail: bytes) -> int:
    """Returns the bytes of a Parquet file's footer; 0 where it has none."""
    return int.from_bytes(tail[-8:-4], "little") + 8 if tail[-4:] == b"PAR1" else 0


def _foreign(tail: bytes) -> str | None:
    """Says of a sound Parquet file that stopgap refuses what it is; `None` where the file is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = _footer(tail)
    if not 0 < footer <= len(tail):
        return None
    try:
        metadata = pq.read_metadata(io.BytesIO(b"PAR1" + tail[-footer:])).metadata or {}
    except (pa.ArrowException, OSError, ValueError):
        return None
    schema = metadata.get(b"stopgap.schema")
    if schema is None:
        return "no trace"
    if schema not in (b"stopgap.trace/1", b"stopgap.trace/2"):
        return f"a trace of another version, {schema.decode(errors='replace')}"
    return None
