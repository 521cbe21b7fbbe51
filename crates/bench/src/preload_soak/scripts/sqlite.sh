# SQLite with its file mapped (`PRAGMA mmap_size`): the mapping grows with the file, by mremap.
run() { with sqlite3 -batch -bail db ".read $SOURCES/tables.sql" >answer; }

# Numbers known without SQLite: its rows are the numbers up to 300,000 but the multiples of 3, and their sum.
check() {
    for line in 'rows 200000 30000000000' 1073741824; do
        grep -qx "$line" answer || fail "no line '$line' in $(cat answer)"
    done
    [ "$(grep -cx ok answer)" = 2 ] || fail "integrity_check: $(cat answer)"
    cat answer
}
