"""Made traces: what is repeated a thousand times still has numbers of its own."""

import pyarrow.parquet as pq
import pytest

from stopgap.fleet import synthetic

from .conftest import RECORDED


@pytest.mark.parametrize("copies", [(1, 2), (1023, 5000)])
def test_threads_of_each_copy_have_numbers_of_their_own(copies):
    tables = [pq.read_table(path) for path in RECORDED]
    table = max(tables, key=lambda table: len(synthetic._begun(table)))
    begun = synthetic._begun(table)
    assert len(begun) > 0
    own = set(begun.to_pylist())
    made = [synthetic._changed(table, copy, 0, 1.0, 0, 0, begun) for copy in copies]
    seen = [{number for number in one["target_tid"].drop_null().to_pylist() if number >= synthetic.LARGEST_PID} for one in made]
    assert [len(one) for one in seen] == [len(own)] * 2
    assert not seen[0] & seen[1]
    # All others keep theirs, and of threads that began none is left.
    for one in made:
        kept = [set(of["tid"].drop_null().to_pylist()) for of in (table, one)]
        assert {number for number in kept[1] if number < synthetic.LARGEST_PID} == kept[0] - own
