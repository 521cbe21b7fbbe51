# Rust programs that map memory themselves: the mails' own case, buffers that come and go; threads that cut up ranges; and the first one
# linked statically.
prepare() {
    case $NAME in
    rust-ranges) set -- "$SOURCES/ranges.rs" ;;
    rust-static) set -- "$SOURCES/buffers.rs" -C target-feature=+crt-static ;;
    *) set -- "$SOURCES/buffers.rs" ;;
    esac
    # A rustc may be rustup's, which asks HOME which one it is.
    PATH=$CALLERS_PATH HOME=$CALLERS_HOME $RUSTC --edition 2021 -O -o "$SHARED/program" "$@"
}
run() { run_built; }
check() { cat answer; }
