# Xvfb and 20 clocks that draw themselves 60 times a second, for 8 seconds.
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || :
    rm -rf "$work"
}
trap end EXIT
mkfifo "$work/display"
Xvfb -displayfd 3 -screen 0 800x600x24 -nolisten tcp 3>"$work/display" >"$work/log" 2>&1 &
server=$!
read -r display <"$work/display"
clients=
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    timeout 8 xclock -display ":$display" -digital -update 0.016666 >"$work/log$number" 2>&1 &
    clients="$clients $!"
done
for client in $clients; do
    wait "$client" || [ $? = 124 ] # its time was over
done
kill "$server"
wait "$server" || :
server=
