# What PostgreSQL's regression tests start with: a cluster of its own, made, started, asked and ended; pgbench in between. It refuses to
# run as root: the user nobody has its folder then. It listens on a Unix socket in that folder alone.
tool() {
    name=$1
    shift
    set -- "/usr/lib/postgresql/15/bin/$name" "$@"
    [ "$(id -u)" != 0 ] || set -- setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
    with "$@"
}

asks() { # PROGRAM WORDS...: of the server
    name=$1
    shift
    tool "$name" -h "$PWD" -U postgres "$@"
}

sql() { asks psql -d postgres -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }

# "The database system is ready" is the eighth line of this file.
is_ready() {
    case $(sed -n 8p data/postmaster.pid 2>&1) in ready*) ;; *) false ;; esac
}

run() {
    [ "$(id -u)" != 0 ] || chown 65534:65534 .
    tool initdb --no-sync -A trust -U postgres -E UTF8 --no-locale -D data >log
    tool postgres -c listen_addresses= -c fsync=off -c autovacuum=off -k "$PWD" -D "$PWD/data" >server.log 2>&1 &
    server=$!
    until_it is_ready
    case $NAME in
    pgbench) transactions ;;
    *) queries ;;
    esac
    tool pg_ctl stop -m fast -D data >log
    wait $server || fail "postgres: $? $(tail -n 8 server.log)"
    [ ! -e data/postmaster.pid ] || fail "$PWD/data/postmaster.pid: it is still there"
}

queries() {
    answer=$(sql "create table t as select i, repeat(md5(i::text), 20) as text from generate_series(1, 50000) i;
        create index on t (text); analyze t;
        select count(*), sum(i), (select count(*) from t a join t b using (text)) from t")
    [ "$answer" = '50000|1250025000|50000' ] || fail "psql: $answer"
}

# 4 clients, 500 transactions each.
transactions() {
    asks pgbench -i -q -s 2 postgres
    said=$(asks pgbench -n -c 4 -j 1 -t 500 postgres)
    for wanted in 'actually processed: 2000/2000' 'failed transactions: 0 '; do
        case $said in *"$wanted"*) ;; *) fail "pgbench: no '$wanted' in '$said'" ;; esac
    done
    # Every transaction adds the same to an account, a teller, a branch and the history.
    sums=$(sql "select (select sum(abalance) from pgbench_accounts) = all (array[
        (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches),
        (select sum(delta) from pgbench_history)]), (select count(*) from pgbench_history)")
    [ "$sums" = 't|2000' ] || fail "the balances differ: '$sums', not 't|2000'"
    asks pg_amcheck --install-missing --heapallindexed postgres
}
