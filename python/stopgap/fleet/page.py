"""A fleet's report as text, and as a page in the style of `stopgap report`."""

from __future__ import annotations

import html as escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answers import Report

#: Rows of a table that are shown; the Arrow tables have all.
SHOWN = 12

#: Style of a cell whose words are not broken.
WHOLE = "overflow-wrap:normal"

#: Columns of a terminal.
WIDTH = 80

#: Words of causes as people say them.
WORDS = {
    "run-queue": "waiting for a CPU",
    "io": "waiting for a disk",
    "disk": "waiting for a disk",
    "direct-reclaim": "reclaim",
    "memcg-reclaim": "reclaim of the memory group",
    "compaction": "compaction",
    "throttled": "held back by reclaim",
    "lock": "a lock",
    "mmap_lock": "mmap_lock",
    "running": "another thread that ran",
    "network": "the network",
    "unknown": "unknown",
    "smaller-causes": "smaller causes",
}


def told(cause: str) -> str:
    """Returns a cause in words."""
    return WORDS.get(cause, cause)


def seconds(value: float | None) -> str:
    """Returns seconds per hour with three digits, or more where that is a whole number."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    """Returns a share in per cent; what is there is never 0."""
    if value is None:
        return "-"
    return "<1 %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def interval(row: dict[str, Any], low: str = "low", high: str = "high") -> str:
    """Returns `(low..high)`."""
    return "" if row[low] is None else f"({seconds(row[low])}..{seconds(row[high])})"


def effect(row: dict[str, Any]) -> str:
    """Returns how much more or less, with the interval."""
    if row["effect"] is None:
        return "-"
    sign, unit = ("x", "") if row["scale"] == "ratio" else ("", " s/h")
    return f"{row['effect']:.3g}{sign}{unit} {interval(row)}"


def headline(report: Report) -> tuple[str, str, str]:
    """Returns class, headline and sentence."""
    causes = [row for row in report.causes.to_pylist() if row["group"] == "all"]
    if not causes:
        return "open", "CANNOT TELL", "no trace has a host, a length and scheduling events"
    known = [row for row in causes if row["cause"] not in ("unknown", "smaller-causes")]
    if not known:
        return "open", "CANNOT TELL", "the traces do not show the causes of the lost time"
    first = known[0]
    rate = f"{seconds(first['s_per_hour'])} s per host-hour {interval(first)}".rstrip()
    sentence = f"{told(first['cause'])} costs {rate}, {share(first['share'])} of the time lost, on {first['hosts_with']:,} of {first['hosts']:,} hosts"
    changed = [row for row in report.changes.to_pylist() if row["word"] in ("more", "less")]
    if changed:
        one = changed[0]
        sentence += f"; since {one['after']} {told(one['cause'])} is {effect(one)} of {one['before']}"
    return "bad", "THE FLEET LOSES MOST TIME TO " + told(first["cause"]).upper(), sentence


def tables(report: Report) -> list[tuple[str, str, list[str], list[list[str]]]]:
    """Returns title, remark, heads and rows of each table; of the heads those that begin with `#` are numbers."""
    causes = report.causes.to_pylist()
    found = []
    rank = ["cause", "#s per host-hour", "interval", "#share", "#hosts"]

    def ranked(row: dict[str, Any]) -> list[str]:
        return [told(row["cause"]), seconds(row["s_per_hour"]), interval(row), share(row["share"]), f"{row['hosts_with']:,} of {row['hosts']:,}"]

    remark = "Threads' seconds lost per hour of recording of a host. Intervals: 95 %, over hosts."
    found.append(("Causes", remark, rank, [ranked(row) for row in causes if row["group"] == "all"]))
    changes = report.changes.to_pylist()
    if changes:
        one = changes[0]
        if one["paired"]:
            remark = f"{one['after']} against {one['before']} on the same {one['hosts_after']:,} hosts: means over hosts, paired by host, Westfall and Young's adjustment."
        else:
            remark = f"{one['after']} ({one['hosts_after']:,} hosts) against {one['before']} ({one['hosts_before']:,}): means over hosts, permutations of hosts, Holm's adjustment."
        found.append(
            (
                "Changes",
                remark,
                ["cause", "#before, s/h", "#after, s/h", "after/before", "answer"],
                [[told(row["cause"]), seconds(row["before_s_per_hour"]), seconds(row["after_s_per_hour"]), effect(row), "not proven" if row["word"] == "no difference proven" else row["word"]] for row in changes],
            )
        )
    what_if = report.what_if.to_pylist()
    if what_if:
        found.append(
            (
                "What if",
                f"Hosts whose figure falls by 5 % or more against {what_if[0]['baseline']}, on the same traces.",
                ["question, figure", "policy", "#helped", "#hurt", "ratio"],
                [[f"{row['question']}, {row['figure']}", row["policy"], f"{row['helped']:,} of {row['hosts']:,}", f"{row['hurt']:,}", f"{row['ratio']:.3g}x {interval(row)}"] for row in what_if],
            )
        )
    outliers = report.outliers.to_pylist()
    if outliers:
        found.append(
            (
                "Outlier hosts",
                "Three quartile distances or more above the upper quartile, of logarithms.",
                ["host", "cause", "#s per hour", "#times the median"],
                [[row["host"], told(row["cause"]), seconds(row["s_per_hour"]), f"{row['times']:.3g}"] for row in outliers],
            )
        )
    for group in ("kernel", "device", "program"):
        rows = [row for row in causes if row["group"] == group]
        if len({row["value"] for row in rows}) > 1:
            found.append((f"By {group}", "", [group, *rank], [[row["value"], *ranked(row)] for row in rows]))
    disks = [row for row in causes if row["group"] == "disk"]
    if disks:
        remark = "Waits for a disk alone, per hour of the hosts that have one."
        found.append(("By disk", remark, ["disk", *rank[1:3], rank[4]], [[row["value"], *ranked(row)[1:3], ranked(row)[4]] for row in disks]))
    errors = report.errors.to_pylist()
    if errors:
        found.append(("Traces that failed", "", ["#traces", "the first of them"], [[f"{row['traces']:,}", row["error"]] for row in errors]))
    return found


def summary(report: Report) -> str:
    """Returns what the report is of, in a sentence."""
    t = report.totals
    return f"{t['traces_used']:,} of {t['traces']:,} traces, {t['hosts']:,} host{'s' * (t['hosts'] != 1)}, {t['hours']:.3g} h recorded, {seconds(t['lost_s'])} s lost"


def text(report: Report) -> str:
    """Returns the report for a terminal."""
    _, head, sentence = headline(report)
    lines = [f"stopgap fleet   {summary(report)}", "", head, *_wrapped(_begun(sentence) + ".")]
    for title, _, heads, rows in tables(report):
        lines += ["", title.upper()]
        names = [head.lstrip("#") for head in heads]
        widths = [max(len(row[at]) for row in [names, *rows[:SHOWN]]) for at in range(len(names))]
        while sum(widths) + 2 * len(widths) > WIDTH:
            widths[widths.index(max(widths))] -= 1
        names, *shown = ([_cut(cell, width) for cell, width in zip(row, widths)] for row in [names, *rows[:SHOWN]])
        for row in [names, *shown]:
            cells = [cell.rjust(width) if head[0] == "#" else cell.ljust(width) for cell, width, head in zip(row, widths, heads)]
            lines.append((" " + "  ".join(cells)).rstrip())
        if len(rows) > SHOWN:
            lines.append(f" and {len(rows) - SHOWN:,} more")
    if report.notes:
        lines += ["", *(line for note in report.notes for line in _wrapped(f"Note: {note}."))]
    return "\n".join(_printable(line) for line in lines)


def section(report: Report) -> str:
    """Returns the part of the page between head and end."""
    parts = [f"<h2>{escape.escape(summary(report))}</h2>"]
    if report.notes:
        parts.append("<ul class=\"warnings\">" + "".join(f"<li>{escape.escape(note)}</li>" for note in report.notes) + "</ul>")
    parts.append(_bars(report))
    for title, remark, heads, rows in tables(report):
        table = _html_table(heads, rows[: SHOWN * 20])
        fold = title.startswith("By ") or title.startswith("Traces")
        body = (f"<p class=\"soft\">{escape.escape(remark)}</p>" if remark else "") + table
        parts.append(f"<details><summary>{escape.escape(title)}</summary>{body}</details>" if fold else f"<h3>{escape.escape(title)}</h3>{body}")
    return "\n".join(parts)


def html(report: Report) -> str:
    """Returns the whole page."""
    from stopgap import _stopgap

    kind, head, sentence = headline(report)
    return _stopgap.page(report.out, section(report), [(kind, head, _begun(sentence))], report.command)


def _html_table(heads: list[str], rows: list[list[str]]) -> str:
    def cells(tag: str, row: list[str]) -> str:
        # A narrow page scrolls a table rather than break a word or a number.
        opened = [f'<{tag} class="n" style="{WHOLE}">' if head[0] == "#" else f'<{tag} style="{WHOLE}">' for head in heads]
        return "".join(f"{begin}{escape.escape(cell)}</{tag}>" for begin, cell in zip(opened, row))

    head = cells("th", [head.lstrip("#") for head in heads])
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _bars(report: Report) -> str:
    """Draws the causes with their intervals."""
    rows = [row for row in report.causes.to_pylist() if row["group"] == "all"][:SHOWN]
    most = max((row["high"] or row["s_per_hour"] for row in rows), default=0)
    if not most:
        return ""
    # Narrow, so that its words can be read on a telephone.
    left, width, step = 170, 260, 24
    drawn = []
    for at, row in enumerate(rows):
        y = at * step + 4
        drawn.append(f"<text x=\"{left - 8}\" y=\"{y + 13}\" text-anchor=\"end\" font-size=\"12\" fill=\"#111111\">{escape.escape(_cut(told(row['cause']), 26))}</text>")
        drawn.append(f"<rect x=\"{left}\" y=\"{y}\" width=\"{row['s_per_hour'] / most * width:.1f}\" height=\"16\" fill=\"#0072B2\"/>")
        if row["low"] is not None:
            low, high = (left + row[end] / most * width for end in ("low", "high"))
            drawn.append(f"<path d=\"M{low:.1f} {y + 8}H{high:.1f}M{low:.1f} {y + 4}v8M{high:.1f} {y + 4}v8\" stroke=\"#111111\" fill=\"none\"/>")
    label = "Seconds lost per host-hour by cause, with 95 % intervals over hosts"
    svg = f"<svg viewBox=\"0 0 {left + width + 20} {len(rows) * step + 8}\" style=\"max-width:560px\" role=\"img\" aria-label=\"{label}\">{''.join(drawn)}</svg>"
    return f"<figure><figcaption>{label}</figcaption>{svg}</figure>"


def _cut(text: str, most: int) -> str:
    """Shortens in the middle: names of hosts, and what is waited for, differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH - 2)
