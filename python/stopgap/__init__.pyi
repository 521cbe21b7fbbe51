from collections.abc import Sequence
from os import PathLike
from typing import Any, BinaryIO, Literal, TypedDict

Path = str | PathLike[str]
OneOrMore = Path | Sequence[Path]

class Error(ValueError):
    """Why stopgap could not do it: the line that the command prints."""

class Note(UserWarning):
    """What the command would tell on standard error beside its result."""

class Verdict(TypedDict):
    word: str
    text: str

class Identity(TypedDict):
    trace_id: str
    host: str | None
    kernel: str | None
    kernel_release: str | None
    architecture: str | None
    cpu: str | None
    cpus: int | None
    memory_bytes: int | None
    hypervisor: str | None
    device: str | None
    devices: str | None
    disks: str | None
    program: str | None
    command: str | None
    date: str | None
    boot_id: str | None
    clock: str | None
    stopgap: str | None
    lost_events: int | None
    labels: str | None

class Table:
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    @property
    def column_names(self) -> list[str]: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def to_arrow(self) -> Any: ...

class _Document:
    def to_json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def to_text(self, verbose: bool = False, width: int = 120) -> str: ...
    def to_html(self) -> str: ...

class Findings(_Document):
    @property
    def verdict(self) -> Verdict: ...
    @property
    def damaged(self) -> str | None: ...
    @property
    def trace(self) -> dict[str, Any]: ...
    @property
    def losses(self) -> dict[str, Any]: ...
    @property
    def advice(self) -> list[dict[str, str]]: ...
    @property
    def missing(self) -> list[dict[str, str]]: ...
    @property
    def stalls(self) -> Table: ...
    @property
    def waits(self) -> Table: ...
    @property
    def blame(self) -> Table: ...
    @property
    def round_trips(self) -> Table: ...
    @property
    def tasks(self) -> Table: ...
    @property
    def calls(self) -> Table: ...

class Replay(_Document, Table):
    @property
    def growth(self) -> Table: ...

class Comparison(_Document):
    @property
    def verdict(self) -> Verdict: ...
    @property
    def figures(self) -> Table: ...
    @property
    def environment(self) -> Table: ...
    @property
    def warnings(self) -> list[str]: ...

def explain(
    trace: Path, *, top: int | None = None, frame_marker: str | None = None, request: str | None = None
) -> Findings: ...
def identity(trace: Path | BinaryIO, *, name: str | None = None) -> Identity: ...
def read_trace(trace: Path, *, columns: str | Sequence[str] | None = None) -> Table: ...
def replay_placement(
    workload: Path,
    *,
    policies: str | Sequence[str] | None = None,
    n: int | Sequence[int] | None = None,
    seed: int | None = None,
    ops: int | None = None,
    direction: Literal["top-down", "bottom-up"] | None = None,
    pid: int | None = None,
    memory: int | None = None,
) -> Replay: ...
def replay_chunks(
    scenario: Path = "thread",
    *,
    policies: str | Sequence[str] | None = None,
    n: int | None = None,
    seed: int | None = None,
    kernel: str | None = None,
    prices: Path | None = None,
    size: int | None = None,
    device: int | Sequence[int] | None = None,
    access: str | Sequence[str] | None = None,
) -> Replay: ...
def replay_roundtrip(
    trace: Path | None = None,
    *,
    policies: str | Sequence[str] | None = None,
    n: int | None = None,
    seed: int | None = None,
    client: str | Sequence[str] | None = None,
    server: str | Sequence[str] | None = None,
    work: int | Sequence[int] | None = None,
    batch: int | Sequence[int] | None = None,
) -> Replay: ...
def compare(
    before: OneOrMore,
    after: OneOrMore,
    *,
    margin: float | None = None,
    endpoint: str | Sequence[str] | None = None,
    question: str | None = None,
    series: str | None = None,
    threshold: int | None = None,
    unit: Literal["ns", "us"] | None = None,
    per: str | None = None,
    seed: int | None = None,
) -> Comparison: ...
def ministat(
    *files: Path,
    column: int | None = None,
    confidence: float | None = None,
    delimiters: str | None = None,
    plot: bool = True,
    width: int | None = None,
) -> str: ...
