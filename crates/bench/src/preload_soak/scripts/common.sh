# What the programs' scripts share. Each script defines some of these steps, which run in the folder of a run:
#
# prepare  once, without the library, not timed: compiles, writes inputs to $SHARED
# run      timed; `with` puts the library into a command
# check    prints what must be the same with the library and without
# remark   prints a remark for the program's line
#
# A step that does not end with status 0 has failed; its last lines of standard error say why.
prepare() { :; }
run() { :; }
check() { :; }
remark() { :; }

fail() {
    echo "$*" >&2
    exit 1
}

with() (
    [ -z "$LIBRARY" ] || export STOPGAP_REPORT="$REPORT"
    [ -z "$LIBRARY" ] || [ -z "$KEEP" ] || export STOPGAP_KEEP="$KEEP"
    # What a shell starts with `&` ignores these signals, and a program that tests them fails.
    heard=--default-signal=INT,QUIT
    if [ -n "$STOPGAP" ]; then
        export STOPGAP_PRELOAD="$LIBRARY"
        if [ -n "$STATIC" ]; then
            # It refuses what no library can be put under: status 3.
            "$STOPGAP" run --fix "arena${KEEP:+-keep}" -- "$@" || [ $? = 3 ] || exit 1
            exec env $heard "$@"
        fi
        exec env $heard "$STOPGAP" run --fix "arena${KEEP:+-keep}" -- "$@"
    elif [ -n "$LIBRARY" ]; then
        exec env $heard LD_PRELOAD="$LIBRARY" "$@"
    fi
    exec env $heard "$@"
)

# Runs a command that must print `ok ...`, the answer for `check`.
answers() {
    with "$@" >answer 2>err && grep -q '^ok ' answer || fail "$(cat answer err)"
}

# Waits until a command succeeds; $server runs meanwhile.
until_it() {
    tries=0
    until "$@"; do
        kill -0 "$server" || fail "the server ended before it was ready: $(tail -n 8 server.log)"
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "not so after a minute: $*"
        sleep 0.1
    done
}

# Runs the program that was built. `stopgap run` must refuse a static one.
run_built() {
    answers "$SHARED/program"
    [ -z "$STOPGAP" ] || [ -z "$STATIC" ] || grep -q 'is statically linked' err ||
        fail "stopgap run does not say that the program is static: $(cat err)"
}
