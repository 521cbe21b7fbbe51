# Redis, saving by fork while it is written to. Debian's is linked with jemalloc, which takes its memory by mmap.
ask() { redis-cli -s s "$@"; }

start() {
    with redis-server --port 0 --save '' --enable-debug-command yes --unixsocket "$PWD/s" --dir "$PWD" >server.log 2>&1 &
    server=$!
    until_it answers_ping
}

# It answers LOADING with an error until the file is read.
answers_ping() { [ "$(ask PING 2>&1)" = PONG ]; }

# Saves by fork, and waits until that is done.
save() {
    ask BGSAVE >said
    while ask INFO persistence >said && ! grep -q '^rdb_bgsave_in_progress:0' said; do sleep 0.5; done
    grep -q '^rdb_last_bgsave_status:ok' said || fail "the save failed: $(cat said)"
}

end() {
    ask SHUTDOWN NOSAVE >said 2>&1 || : # it answers by closing
    wait $server || fail "redis-server: $? $(tail -n 8 server.log)"
}

run() {
    start
    ask DEBUG POPULATE 200000 key 100 >said
    with redis-benchmark -s s -t set,get,lpush -n 200000 -r 200000 -d 200 -P 16 -q >load 2>&1 &
    load=$!
    save
    save
    wait $load || fail "redis-benchmark: $(tail -n 8 load)"
    save # nobody writes now: the file must hold all there is
    digest=$(ask DEBUG DIGEST)
    end
    start
    read=$(ask DEBUG DIGEST)
    keys=$(ask DBSIZE)
    end
    [ "$read" = "$digest" ] && [ -n "$(echo "$digest" | tr -d 0)" ] ||
        fail "what was saved, $read, is not what there was, $digest"
    [ "$keys" -gt 200000 ] || fail "$keys keys"
}
