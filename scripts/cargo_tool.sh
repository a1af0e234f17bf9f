# shellcheck shell=bash
# Sourced by scripts that call a tool written in Rust, after cache.sh. A tool that is on PATH is used as it is; otherwise one
# is built into the cache folder, once.

# Builds version $2 of the tool $1 in a temporary folder and renames it: what lies at the final path is always whole.
build_cargo_tool() {
    local name=$1 version=$2 installed="$SEGUE_CACHE_DIR/$1-$2"
    lock_cache "$name"
    [[ ! -x "$installed/bin/$name" ]] || return 0
    say "building $name $version, once (a minute or two on two cores)"
    rm -rf "$SEGUE_CACHE_DIR"/.building-"$name".* # left by builds that were killed; the lock says none is running
    work=$(mktemp -d "$SEGUE_CACHE_DIR/.building-$name.XXXXXX")
    trap 'rm -rf "$work"' EXIT # `work` is no local: the trap outlives the function
    # From a folder outside the checkout, whose .cargo/config.toml is none of this tool's business. Unoptimised, which takes a
    # fourth of the processor's time and costs a check two seconds.
    (cd "$work" && CARGO_PROFILE_DEV_DEBUG=0 cargo install "$name" --debug --quiet --locked --version "$version" \
        --root "$work/root" --target-dir "$work/target")
    rm -rf "$installed"
    mv "$work/root" "$installed"
    rm -rf "$work"
    trap - EXIT
}

# Sets CARGO_TOOL to the path of the tool $1, of version $2 where it is not on PATH.
provide_cargo_tool() {
    local name=$1 version=$2
    if command -v "$name" >/dev/null; then
        CARGO_TOOL=$name
        return
    fi
    CARGO_TOOL="$SEGUE_CACHE_DIR/$name-$version/bin/$name"
    [[ -x "$CARGO_TOOL" ]] || build_cargo_tool "$name" "$version"
}
