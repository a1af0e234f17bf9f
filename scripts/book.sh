#!/usr/bin/env bash
# Builds the documents as a book, target/book/index.html: first the parts of the reference that the program writes, then the
# pages by mdBook.
#
#   scripts/book.sh [CARGO FLAGS]
#
# An mdbook already on PATH is used as it is; otherwise one is built into the cache folder, once.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"
# shellcheck source-path=SCRIPTDIR source=cargo_tool.sh
source "$(dirname "${BASH_SOURCE[0]}")/cargo_tool.sh"

VERSION=0.5.4

cd "$SEGUE_ROOT"
export SEGUE_BOOK="write"
cargo test --workspace --bin segue "$@" -- reference::the_reference
provide_cargo_tool mdbook "$VERSION"
"$CARGO_TOOL" build docs/book
say "the book is target/book/index.html"
