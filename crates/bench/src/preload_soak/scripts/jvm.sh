# A JVM with the G1 collector: reserves its heap, commits and uncommits parts of it by MAP_FIXED, mprotect and madvise.
prepare() { javac -d "$SHARED" "$SOURCES/Churn.java"; }

# Without -Xmn G1 makes it larger and smaller by how long its pauses took, and one run is 15 % dearer than the next.
run() {
    answers java -XX:+UseG1GC -Xms16m -Xmx256m -Xmn8m -XX:ParallelGCThreads=2 -Xlog:gc:file=gc.log -cp "$SHARED" Churn
}

check() {
    grep -q 'Using G1' gc.log && grep -q 'Pause Young' gc.log || fail "G1 has not collected: $(cat gc.log)"
    cat answer
}
