# Parts of CPython's own test suite, a process for each line and all at once. CPython takes the memory of its small objects by mmap, in
# arenas of 1 MiB, `mmap` is a module of it, and its `multiprocessing` keeps shared values in mapped files: all of it before and
# after fork(2).
tests() {
    case $NAME in
    cpython) echo 'test_mmap test_gc' ;;
    # `test_multiprocessing_fork` sleeps through a minute of its 75 s. Its classes are dealt out to processes that sleep at the
    # same time; each class is in exactly one of them.
    *)
        echo 'test_fork1'
        echo '-m *.WithProcessesTest[A-E]* test_multiprocessing_fork'
        echo '-m *.WithProcessesTest[F-M]* test_multiprocessing_fork'
        echo '-m *.WithProcessesTest[N-Z]* test_multiprocessing_fork'
        echo '-m *.WithThreads* test_multiprocessing_fork'
        echo '-m *.WithManager* test_multiprocessing_fork'
        echo '-m *.TestWait.* test_multiprocessing_fork'
        echo '-i *.With* -i *.TestWait.* test_multiprocessing_fork'
        ;;
    esac
}

run() {
    set -f
    tests >list
    number=0
    while read -r words; do
        number=$((number + 1))
        (with /usr/bin/python3.11 -m test $words >"log.$number" 2>&1; echo "exit status $?" >>"log.$number") &
    done <list
    wait # for all, even where one fails
    number=0
    while read -r words; do
        number=$((number + 1))
        # "No test was run" ends with status 0, too.
        if grep -Eq 'NO TEST|tests? skipped|FAIL' "log.$number" ||
            ! grep -q 'Tests result: SUCCESS' "log.$number" || ! grep -qx 'exit status 0' "log.$number"; then
            fail "$words: $(tail -n 6 "log.$number")"
        fi
    done <list
}
