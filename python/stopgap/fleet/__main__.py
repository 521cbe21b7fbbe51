"""`python -m stopgap.fleet`: what `stopgap fleet` runs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import NoReturn

from . import FleetError, explain, replay, report


def main(words: list[str] | None = None) -> int:
    """Does what the command line says; returns the exit status."""
    args = _parser().parse_args(words)
    try:
        return args.do(args)
    except (FleetError, ValueError, TypeError, OSError) as error:
        print(f"stopgap: {' '.join(str(error).split())}", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopgap: interrupted; run it again to go on", file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    """Refuses words as the other commands do: in one line, with exit status 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"stopgap: {message}; see '{self.prog} --help'\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="stopgap fleet", description="Ask thousands of traces at once: which cause costs the fleet most, and which policy would have helped.", epilog="docs/fleet.md")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("url", metavar="DIR|URL", help="directory or prefix of the traces, as traces/ or s3://bucket/traces")
    where.add_argument("-o", "--output", metavar="DIR|URL", help="where results go [default: _stopgap below the traces]")
    engine = argparse.ArgumentParser(add_help=False)
    engine.add_argument("--engine", choices=("local", "ray"), default="local", help="processes on this machine, or Ray [default: local]")
    engine.add_argument("--workers", type=int, metavar="N", help="processes [default: as many as CPUs and memory allow]")
    engine.add_argument("--address", metavar="ADDRESS", help="a Ray cluster that runs, as auto or ray://host:10001 [default: $RAY_ADDRESS, else Ray starts here]")

    one = commands.add_parser("explain", parents=[where, engine], help="explain every trace: a result file for each", description="Index the traces and explain each. Run it again after whatever ended it: it does only what is missing.")
    one.set_defaults(do=_explain)

    one = commands.add_parser("replay", parents=[where, engine], help="replay every trace under other policies", description="Index the traces and replay each under other policies.")
    one.add_argument("--question", required=True, choices=("placement", "chunks", "roundtrip"), help="what is replayed")
    one.add_argument("--policy", metavar="LIST", help="policies, separated by commas; report compares with the first [default: all]")
    one.add_argument("--seeds", type=int, default=1, metavar="N", help="replay each with the seeds 1 to N [default: 1]")
    one.set_defaults(do=_replay)

    one = commands.add_parser("report", help="rank causes, compare kernels, name outliers", description="Answer questions about the fleet from the results of explain and replay.")
    one.add_argument("url", metavar="DIR|URL", help="directory or prefix of the traces, or of the results")
    one.add_argument("-o", "--output", metavar="DIR|URL", help="write report.html and a Parquet file for each table there")
    one.add_argument("--kernels", metavar="BEFORE,AFTER", help="compare these two [default: those that most hosts have]")
    one.add_argument("--since", metavar="DATE", help="compare what was recorded before and since this date, as 2026-03-19")
    one.add_argument("--seed", type=int, default=1, metavar="N", help="seed of draws and permutations [default: 1]")
    one.add_argument("--json", action="store_true", help="print JSON (schema stopgap.fleet/1)")
    one.set_defaults(do=_report)
    return parser


def _explain(args: argparse.Namespace) -> int:
    print(explain(args.url, out=args.output, engine=args.engine, workers=args.workers, address=args.address))
    return 0


def _replay(args: argparse.Namespace) -> int:
    policies = args.policy.split(",") if args.policy else None
    print(replay(args.url, question=args.question, policies=policies, seeds=args.seeds, out=args.output, engine=args.engine, workers=args.workers, address=args.address))
    return 0


def _report(args: argparse.Namespace) -> int:
    kernels = tuple(args.kernels.split(",")) if args.kernels else None
    found = report(args.url, kernels=kernels, since=args.since, seed=args.seed)  # type: ignore[arg-type]
    saved = found.save(args.output) if args.output else None
    print(json.dumps(found.to_dict(), indent=1) if args.json else found.text())
    if saved and not args.json:
        print(f"\nReport: {saved}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
