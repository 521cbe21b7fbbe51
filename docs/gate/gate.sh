#!/bin/sh
# Fails where the candidate needs more CPU time than the base, with status 2:
#   gate.sh BASE CANDIDATE
# BASE and CANDIDATE are commands, as './base/bench' and './bench'. Settings stand in stopgap.toml.
set -eu
stopgap compare --run "$1" --run "$2" --fail-on regression --junit compare.xml
