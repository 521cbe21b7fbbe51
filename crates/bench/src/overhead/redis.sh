# Redis and one client that asks again as soon as it is answered, on one CPU, over a Unix socket.
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || :
    rm -rf "$work"
}
trap end EXIT
cpu=$(taskset -cp $$ | sed 's/.*[^0-9]//')
taskset -c "$cpu" redis-server --port 0 --save '' --unixsocket "$work/s" --dir "$work" >"$work/log" 2>&1 &
server=$!
tries=0
until [ "$(redis-cli -s "$work/s" PING 2>&1)" = PONG ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ]
    sleep 0.05
done
taskset -c "$cpu" redis-benchmark -s "$work/s" -c 1 -n 100000 -t get -q >/dev/null
kill "$server"
wait "$server"
server=
