"""Object storage: moto's S3 server on the loopback interface."""

import random
import threading

import pytest

from stopgap import fleet
from stopgap.fleet.__main__ import main
from stopgap.fleet.store import Store

from .conftest import results

pytestmark = pytest.mark.s3


class Server:
    """moto's application behind a switch that refuses some requests."""

    def __init__(self):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.inner = DomainDispatcherApplication(create_backend_app)
        self.refuse, self.refused, self.asked, self.random = None, 0, 0, random.Random(1)
        self.lock = threading.Lock()
        self.server = make_server("127.0.0.1", 0, self, threaded=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.port}"

    def __call__(self, environ, start):
        with self.lock:
            self.asked += 1
            answer = self.refuse(environ) if self.refuse else None
            self.refused += answer is not None
        if answer is None:
            return self.inner(environ, start)
        status, code = answer
        start(status, [("Content-Type", "application/xml")])
        return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]

    def one_in_ten(self, environ):
        """503 to one request in ten."""
        return ("503 Slow Down", "SlowDown") if self.random.random() < 0.1 else None


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("moto")
    made = Server()
    yield made
    made.server.shutdown()


@pytest.fixture
def bucket(server, monkeypatch):
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", server.url),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    server.refuse = None
    name = f"bucket-{random.randrange(10**9)}"
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}"
    server.refuse = None


def upload(traces, url):
    store = Store(url)
    for path in traces.rglob("*.parquet"):
        if "_stopgap" not in path.parts:
            store.write(str(path.relative_to(traces)), path.read_bytes())
    return url


def objects(url):
    store = Store(url)
    store.fs.invalidate_cache()
    return {name: store.read(name) for name in store.files("", hidden=True)}


def test_index_explain_and_report(traces, bucket, server, tmp_path):
    url = upload(traces, f"{bucket}/traces")
    index = fleet.index(url)
    assert (len(index), index.read) == (24, 24)
    assert fleet.index(url).read == 0
    done = fleet.explain(index, workers=2)
    assert (done.done, done.failed) == (24, 0)
    fleet.explain(traces, out=tmp_path, workers=2)
    local = results(tmp_path / "explain")
    assert objects(f"{url}/_stopgap/explain") == local
    remote, here = fleet.report(url).to_dict(), fleet.report(tmp_path).to_dict()
    assert {**remote, "out": ""} == {**here, "out": ""}
    page = fleet.report(url).save(f"{bucket}/page")
    assert Store(bucket).read("page/report.html").startswith(b"<!DOCTYPE html>") and page == f"{bucket}/page/report.html"


def test_a_store_that_answers_503_to_one_in_ten(traces, bucket, server, tmp_path):
    url = upload(traces, f"{bucket}/traces")
    server.refuse, server.refused = server.one_in_ten, 0
    done = fleet.explain(fleet.index(url), workers=2)
    assert server.refused > 5 and (done.done, done.failed) == (24, 0)
    server.refuse = None
    fleet.explain(traces, out=tmp_path, workers=2)
    assert objects(f"{url}/_stopgap/explain") == results(tmp_path / "explain")


def test_a_store_without_rights(traces, bucket, server, capsys):
    url = upload(traces, f"{bucket}/traces")
    server.refuse = lambda environ: ("403 Forbidden", "AccessDenied")
    with pytest.raises(fleet.FleetError, match="no right to read s3://.*credentials"):
        fleet.index(url)
    for words in (["explain", url], ["replay", "--question", "chunks", url], ["report", url]):
        assert main(words) == 1
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and "no right to read s3://" in told.err and "check the credentials" in told.err
    server.refuse = None
    assert [name for name in objects(url) if name.startswith("_stopgap")] == []
    index = fleet.index(url)
    server.refuse = lambda environ: ("403 Forbidden", "AccessDenied") if environ["REQUEST_METHOD"] == "PUT" else None
    with pytest.raises(fleet.FleetError, match="no right to write s3://"):
        fleet.explain(index, workers=1)
    server.refuse = None
    assert [name for name in objects(url) if name.startswith("_stopgap")] == ["_stopgap/manifest.parquet"]
    with pytest.raises(fleet.FleetError, match="no traces|no such"):
        fleet.index(f"{bucket}/nothing")
