# A Go program, static, and linked with glibc by cgo. Go's runtime makes its system calls itself either way: the library sees what C code
# asks for and nothing of Go's heap.
prepare() {
    cp "$SOURCES/churn.go" "$SHARED/main.go"
    cd "$SHARED"
    printf 'module churn\n\ngo 1.19\n' >go.mod
    if [ -n "$STATIC" ]; then
        printf 'package main\n\nfunc leave() {}\n' >leave.go
    else
        # What makes the linker take glibc. Go's own exit ends the process at once: it leaves by C's, so that the library reports.
        printf 'package main\n\n// #include <stdlib.h>\nimport "C"\n\nfunc leave() { C.exit(0) }\n' >leave.go
    fi
    export GOCACHE="$SHARED/cache" GOPATH="$SHARED/path" GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-mod=mod
    CGO_ENABLED=$([ -n "$STATIC" ] && echo 0 || echo 1) go build -o program
}
run() { run_built; }
check() { cat answer; }
