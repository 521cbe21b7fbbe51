"""Read and write objects in a directory or in object storage, through fsspec.

A file appears under its final name whole or not at all: locally by a temporary name and a rename, in object storage by a single PUT.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
import time
from typing import Any, Callable, Iterator, TypeVar

#: A leftover temporary file of another host is removed after this many seconds.
STALE_SECONDS = 24 * 3600

#: Attempts at a request that the store refuses for now (503, throttling, connection lost).
ATTEMPTS = 8

#: Errors of a file that this user, or nobody, may write.
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)

T = TypeVar("T")


class FleetError(RuntimeError):
    """A run over a fleet that cannot go on. The text is one line that says what to do."""


class Store:
    """A directory or a prefix of an object store, as `/dir`, `s3://bucket/prefix` or any other URL that fsspec knows."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url).rstrip("/") or "/"
        if "://" not in self.url:
            self.url = os.path.abspath(self.url)
        try:
            import fsspec
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise FleetError(f"fleet needs {error.name}: {sys.executable} -m pip install 'stopgap[fleet]'") from None
        scheme = self.url.split("://")[0] if "://" in self.url else "file"
        try:
            self.fs, self.root = fsspec.core.url_to_fs(self.url, **_OPTIONS.get(scheme, {}))
        except ImportError as error:
            raise FleetError(f"{scheme}:// needs a package: pip install 'stopgap[{scheme}]' ({error})") from None
        except ValueError as error:
            raise FleetError(f"{self.url}: {error}") from None
        self.local = scheme in ("file", "local")
        self.root = self.root.rstrip("/")

    def at(self, name: str) -> str:
        """Returns the path of an object as the file system knows it."""
        return f"{self.root}/{name}" if name else self.root

    def name(self, name: str) -> str:
        """Returns the path or URL of an object for people."""
        return f"{self.url}/{name}" if name else self.url

    def child(self, name: str) -> Store:
        """Returns the store of a directory in this one."""
        return Store(f"{self.url}/{name}")

    def files(self, ending: str, hidden: bool = False) -> dict[str, tuple[int, str]]:
        """Returns size and etag of each file below, by name. Names with a part that begins with `_` or `.` are left out."""
        found = self._ask("", lambda: dict(self._walk()))
        names = {}
        for path, info in found.items():
            name = path[len(self.root) :].lstrip("/")
            if not name.endswith(ending) or info.get("type") == "directory":
                continue
            if not hidden and any(part[:1] in "_." for part in name.split("/")):
                continue
            names[name] = (int(info["size"]), _etag(info))
        return names

    def _walk(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.local:
            # As fsspec's find, which leaves out directories that cannot be read and says nothing.
            def refuse(error: OSError) -> None:
                raise error

            for folder, _, files in os.walk(self.root, onerror=refuse):
                for file in files:
                    path = os.path.join(folder, file)
                    try:
                        yield path, self.fs.info(path)
                    except FileNotFoundError:
                        pass
        else:
            self.fs.invalidate_cache()
            yield from self.fs.find(self.root, detail=True).items()

    def exists(self, name: str) -> bool:
        """Returns whether there is an object of this name."""
        return self._ask(name, lambda: self.fs.exists(self.at(name)))

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Returns the bytes of an object, or those from `start` to `end`."""
        return self._ask(name, lambda: self.fs.cat_file(self.at(name), start=start, end=end))

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, whole or not at all."""
        path = self.at(name)
        if not self.local:
            self._ask(name, lambda: self.fs.pipe_file(path, data), "write")
            return
        folder, file = os.path.split(path)
        part = os.path.join(folder, f".{file}.{socket.gethostname()}.{os.getpid()}.part")
        try:
            os.makedirs(folder, exist_ok=True)
            try:
                with open(part, "xb", opener=_private) as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                os.rename(part, path)
            except BaseException:
                if os.path.exists(part):
                    os.unlink(part)
                raise
        except OSError as error:
            what_to_do = "; give another place (-o), or run as a user who may write there" if error.errno in NO_RIGHT else ""
            raise FleetError(f"cannot write {self.name(name)}: {error.strerror}{what_to_do}") from error

    def clean(self) -> None:
        """Removes what killed writers left: temporary files of ended processes of this host, and those older than a day."""
        if not self.local:
            return
        for folder, _, files in os.walk(self.root):
            for file in files:
                if file.startswith(".") and file.endswith(".part") and _is_stale(os.path.join(folder, file)):
                    os.unlink(os.path.join(folder, file))

    def copy(self, name: str, folder: str) -> str:
        """Returns a local path of an object: its own, or that of a copy in `folder`."""
        if self.local:
            return self.at(name)
        path = os.path.join(folder, os.path.basename(name))
        data = self.read(name)
        try:
            with open(path, "wb") as out:
                out.write(data)
        except OSError as error:
            raise FleetError(f"cannot write {path}: {error.strerror}; set TMPDIR to a disk with room") from error
        return path

    def _ask(self, name: str, ask: Callable[[], T], verb: str = "read") -> T:
        """Asks, again where the store refuses for now, and says in one line what failed."""
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except FileNotFoundError:
                raise
            except PermissionError as error:
                what_to_do = "run as a user who may, or move it away" if self.local else "check the credentials"
                raise FleetError(f"no right to {verb} {self.name(name)}: {_line(error)}; {what_to_do}") from error
            except Exception as error:
                if not self.local and attempt + 1 < ATTEMPTS and _passes(error):
                    time.sleep(0.05 * 2**attempt)
                    continue
                if type(error).__name__ == "NoCredentialsError":
                    raise FleetError(f"no credentials for {self.name(name)}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error
                raise FleetError(f"cannot {verb} {self.name(name)}: {_line(error)}") from error
        raise AssertionError("a loop that ends by return or raise")


# s3fs asks again by itself where the client library does: standard mode counts 503 among what passes.
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"retries": {"mode": "standard", "max_attempts": 5}}},
    "file": {"auto_mkdir": False},
}


def _passes(error: Exception) -> bool:
    """Whether the store may answer a second time: 5xx, throttled, no connection."""
    text = f"{type(error).__name__} {error}".lower()
    signs = ("503", "500", "slow down", "slowdown", "reduce your request rate", "throttl", "timeout", "timed out", "reset", "connectionclosed", "unavailable", "internalerror")
    return any(sign in text for sign in signs)


def _private(path: str, flags: int) -> int:
    """Opens a new file as the command does: results have names of hosts and command lines."""
    return os.open(path, flags, 0o600)


def _line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _etag(info: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash"):
        if info.get(key):
            return str(info[key]).strip('"')
    changed = info.get("mtime", info.get("LastModified", info.get("created", "")))
    return f"{changed}-{info['size']}"


def _is_stale(path: str) -> bool:
    owner, pid = os.path.basename(path).removesuffix(".part").rsplit(".", 1)
    try:
        if owner.endswith("." + socket.gethostname()) and pid.isdigit():
            return not os.path.exists(f"/proc/{pid}")
        return time.time() - os.stat(path).st_mtime > STALE_SECONDS
    except OSError:
        return False


class Scratch(tempfile.TemporaryDirectory[str]):
    """A folder for copies of objects; it is removed at the end."""

    def __init__(self) -> None:
        super().__init__(prefix="stopgap-fleet-")
