# Stressors of mappings, with their own verification, a fixed number of steps each. Debian 12's stress-ng 0.15.06 does not know --vma.
has_vma() { stress-ng --help | grep -Eq '(^|[[:space:]])--vma([[:space:]]|$)'; }

words() {
    case $NAME in
    stress-ng-mmap) echo --mmap 1 --mmap-ops 8 --mmap-bytes 32m ;;
    stress-ng-mmapmany) echo --mmapmany 1 --mmapmany-ops 60000 ;;
    *)
        if has_vma; then
            echo --vma 1 --vma-ops 20000
        else
            echo --mmapaddr 1 --mmapaddr-ops 20000 --mmapfixed 1 --mmapfixed-ops 100 --mremap 1 --mremap-ops 60 --mremap-bytes 8m
        fi
        ;;
    esac
}

run() {
    with stress-ng $(words) --verify --timeout 100 --temp-path "$PWD" >said 2>&1 || fail "$(tail -n 8 said)"
    grep -q 'successful run completed' said && ! grep -q 'fail:' said || fail "stress-ng: $(cat said)"
}

remark() {
    [ "$NAME" != stress-ng-vma ] || has_vma ||
        echo 'this stress-ng has no --vma: --mmapaddr, --mmapfixed, --mremap stand for it'
}
