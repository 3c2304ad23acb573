#!/usr/bin/env bash
# Runs every client against every server: a thin front of the matrix program. `./run.sh --help` lists the
# flags. With CI=true, or with --install as the first argument, missing tools of the peers are installed
# from the system's packages first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! command -v go >/dev/null; then
	echo "run.sh: go is not on PATH; muxperf is built with Go 1.26 or later" >&2
	exit 2
fi
if [[ ${1:-} == --install ]]; then
	shift
	./.ci/install
elif [[ ${CI:-} == true ]]; then
	./.ci/install
fi
mkdir -p bin
go build -o bin/matrix ./matrix
exec bin/matrix "$@"
