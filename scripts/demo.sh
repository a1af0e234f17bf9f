#!/usr/bin/env bash
# Trains a small Transformer-XL on real text with two ranks, evaluates it and lets it write. `make demo` builds first.
#
#   scripts/demo.sh [TEXT]     TEXT: a file or folder; without it, the sources in your cargo registry
#
# On two cores it takes four minutes, and a text of your own as much longer as there is more of it to tokenise and evaluate.
# Everything lands in runs/demo. A demo that was interrupted goes on where it stopped; a finished one, or one of
# another text, starts afresh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

RANKS=2
DEMO=runs/demo
TEXT="${1:-}"

# Prints the folders or the file to train on, one a line, as absolute paths.
choose_text() {
    if [[ -n "$TEXT" ]]; then
        realpath -e -- "$TEXT" 2>/dev/null || fail "TEXT: no such file or folder: $TEXT"
    else
        python3 scripts/demo_text.py "${CARGO_HOME:-$HOME/.cargo}/registry/src" "$SEGUE_ROOT"
    fi
}

start_afresh_or_go_on() {
    local text=$1
    if [[ -e $DEMO/finished || "$(cat $DEMO/text 2>/dev/null)" != "$text" ]]; then
        rm -rf $DEMO
    fi
    mkdir -p $DEMO
    printf '%s\n' "$text" >$DEMO/text
}

build_corpus() {
    local train=() extension=()
    [[ ! -e $DEMO/corpus/corpus.json ]] || return 0
    mapfile -t train <$DEMO/text
    # A file of the user's own, or a folder of anything: all of it. From the registry: sources and documents.
    [[ -n "$TEXT" ]] || extension=(--extension "rs,md")
    say "1/4 tokenising (byte-level BPE, 4096 entries) into $DEMO/corpus: a few seconds"
    "$SEGUE" data build --preset documents --train "${train[@]}" "${extension[@]}" --split 0.97,0.015,0.015 \
        --tokenizer-kind bpe --vocab-size 4096 --output $DEMO/corpus
}

train() {
    local options=(--bind-to none)
    [[ $(id -u) -ne 0 ]] || options+=(--allow-run-as-root)
    (($(nproc) >= RANKS)) || options+=(--oversubscribe)
    say "2/4 training 200 steps with $RANKS ranks into $DEMO/run: about 3 minutes on two cores"
    mpirun -n $RANKS "${options[@]}" "$SEGUE" pretrain --config configs/recipes/demo.toml \
        run.dir=$DEMO/run data.corpus=$DEMO/corpus
}

evaluate() {
    say "3/4 evaluating on the validation part: about half a minute"
    "$SEGUE" eval --model $DEMO/run --split valid
}

generate() {
    local prompt="${PROMPT:-}"
    if [[ -z "$prompt" ]]; then
        prompt="The "
        [[ -n "$TEXT" ]] || prompt="/// Returns the "
    fi
    say "4/4 writing on from '$prompt': about 5 seconds"
    "$SEGUE" generate --model $DEMO/run --prompt "$prompt" --tokens 120
}

print_places() {
    cat <<PLACES

The demo's files:
  $DEMO/corpus            the tokenised text and its tokenizer
  $DEMO/run               the run: config, metrics.jsonl, TensorBoard events
  $DEMO/run/checkpoints   checkpoints; Hugging Face's from_pretrained opens each of them
Go on with it:
  $SEGUE generate --model $DEMO/run --prompt "fn main"
  make demo TEXT=path     the same on a file or folder of your own
PLACES
}

main() {
    local text
    # TEXT is relative to where the user stands, everything else to the checkout.
    [[ -z "$TEXT" ]] || TEXT=$(realpath -m -- "$TEXT")
    cd "$SEGUE_ROOT"
    SEGUE="${CARGO_TARGET_DIR:-target}/debug/segue"
    [[ -x "$SEGUE" ]] || fail "$SEGUE is not there: run 'make demo', which builds it"
    text=$(choose_text)
    start_afresh_or_go_on "$text"
    build_corpus
    train
    evaluate
    generate
    touch $DEMO/finished
    print_places
}

main
