"""A small fleet for the tests: traces of the repository, with other labels, clocks and sizes."""

import os
import pathlib

import pytest

import stopgap
from stopgap.fleet import synthetic

# Processes that tests start find the same package.
os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(stopgap.__file__))

REPOSITORY = pathlib.Path(__file__).parents[3]
RECORDED = sorted(str(path) for path in (REPOSITORY / "checks/compatibility").glob("*/*.parquet") if path.name != "workload.parquet")


def pytest_configure(config):
    for name, what in (("ray", "starts Ray"), ("s3", "starts an S3 server on the loopback interface"), ("scale", "takes minutes")):
        config.addinivalue_line("markers", f"{name}: {what}")


def made(folder, traces, hosts=8, size=(30e3, 60e3)):
    for at in range(traces):
        name, data = synthetic.make(RECORDED, at, hosts, 1, *size)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture(scope="session")
def traces(tmp_path_factory):
    """24 traces of 8 hosts. Tests do not change them."""
    return made(tmp_path_factory.mktemp("traces"), 24)


def break_some(folder, count):
    """Damages files in five ways, in turn; returns their names."""
    paths = sorted(folder.glob("host-*/*.parquet"))[:count]
    for at, path in enumerate(paths):
        data = path.read_bytes()
        path.write_bytes(
            [
                b"",
                data[: len(data) // 2],
                b"PAR1" + os.urandom(500),
                data[:1000] + bytes(2000) + data[3000:],
                data[:-200] + bytes(192) + data[-8:],
            ][at % 5]
        )
    return [str(path.relative_to(folder)) for path in paths]


def results(out):
    """All results by name, as bytes."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(pathlib.Path(out).rglob("*")) if path.is_file()}
