"""The test of pairs and its interval, by figures that are known from elsewhere."""

import json
import random

import pytest

from stopgap import _stopgap


def pairs(before, after, seed=1):
    """One figure of each host, before and after."""
    told = json.loads(_stopgap.compare_pairs([[one] for one in before], [[one] for one in after], seed))
    assert told["level"] == 0.05
    return told["endpoints"][0]


def test_the_probability_is_fishers():
    """Darwin's 15 pairs of maize plants, by which Fisher showed the test: 5.27 % of all 32,768 arrangements are as far. His interval by
    Student's distribution is -0.03 to 41.9 eighths of an inch."""
    differences = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    found = pairs([0] * 15, differences)
    assert found["p"] == pytest.approx(0.0527, abs=0.005) and found["effect"]["scale"] == "difference"
    assert found["effect"]["low"] == pytest.approx(-0.03, abs=1.5) and found["effect"]["high"] == pytest.approx(41.9, abs=1.5)


def test_few_pairs_are_gone_through_in_all_ways():
    before = [10, 20, 30, 40, 50, 60]
    found = pairs(before, [figure * 1.5 for figure in before])
    assert found["p"] == 2 / 64 and found["effect"]["value"] == pytest.approx(1.5) and found["effect"]["low"] == pytest.approx(1.5)
    assert pairs(before, before)["p"] == 1 == pairs([1], [2])["p"]
    assert [_stopgap.pairs_suffice(hosts, figures) for hosts, figures in ((5, 1), (6, 1), (6, 2), (7, 2), (9, 12), (14, 12))] == [
        False, True, False, True, True, True,
    ]


def test_hosts_that_differ_tenfold_do_not_widen_the_interval():
    before = [1.3 ** (host % 12) for host in range(40)]
    after = [figure * 1.03 * (1 + 0.01 * (host * 7 % 5 - 2)) for host, figure in enumerate(before)]
    found = pairs(before, after)
    assert 1.02 < found["effect"]["low"] < 1.03 < found["effect"]["high"] < 1.04 and found["p"] < 0.001
    assert found == pairs(before, after)


def test_nothing_on_a_side():
    none, gone, came = pairs([0] * 20, [0] * 20), pairs([2] * 20, [0] * 20), pairs([0] * 20, [2] * 20)
    assert none["p"] == 1 and none["effect"]["value"] == 0
    assert gone["p"] < 0.001 and (gone["effect"]["value"], gone["effect"]["low"]) == (0, 0)
    assert came["p"] < 0.001 and came["effect"]["scale"] == "difference" and came["effect"]["low"] > 1
    assert json.loads(_stopgap.compare_pairs([], [], 1))["endpoints"] == []


def test_the_interval_leaves_out_the_same_where_it_is_proven():
    draw = random.Random(1)
    proven = 0
    for round in range(60):
        n, figures = draw.randrange(4, 30), draw.randrange(1, 5)
        before, after = ([[shift * at + draw.random() for at in range(figures)] for _ in range(n)] for shift in (0, 0.1 * (round % 4)))
        for found in json.loads(_stopgap.compare_pairs(before, after, round))["endpoints"]:
            low, high = ((found["effect"][end] if found["effect"][end] is not None else other) for end, other in (("low", 0), ("high", 1e9)))
            assert low <= found["effect"]["value"] <= high and found["p"] <= found["p_holm"]
            assert (low <= 1 <= high) == (found["p_holm"] > 0.05) or min(abs(low - 1), abs(high - 1)) < 1e-9, found
            proven += found["p_holm"] <= 0.05
    assert proven > 10
