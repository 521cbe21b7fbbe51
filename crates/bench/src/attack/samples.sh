# Makes samples: a folder for each format; each file or folder in it is one. Run in an empty folder, which "lab" is in.
# $1: the program; $2: the folder of the crates. A format whose sample cannot be made here has no folder.
stopgap=$1 crates=$2
of() { # NAME COMMAND...: the files that it writes to the format's folder
    mkdir "$1" && folder=$1 && shift
    "$@" >said 2>&1 || { echo "$folder: $(head -c 300 said)" >&2; rm -rf "$folder"; }
}
trace=$crates/trace/fixtures/text read=$crates/stats/fixtures/read
of parquet-workload "$stopgap" export frag --n 40 --ops 60 --to trace -o parquet-workload/t
of jsonl-workload "$stopgap" export frag --n 40 --ops 60 --to jsonl -o jsonl-workload/t
of parquet-recorded cp "$trace/recorded.parquet" parquet-recorded
of jsonl-recorded "$stopgap" export "$trace/recorded.parquet" --to jsonl -o jsonl-recorded/t
of trace-ftrace cp "$trace"/trace*.txt trace-ftrace
of trace-perf cp "$trace"/perf*.txt trace-perf
of spool mkdir spool/s
cp "$crates"/tracer/fixtures/spool.json "$crates"/tracer/fixtures/cpu?.raw spool/s
of snapshot "$stopgap" snapshot -o snapshot/s
of record-run "$stopgap" probe placement --n 100,200 --steps 200 --runs 3 --threads 0 --agua-loops 1 --agua-live 1000 \
    --freegap-rounds 100 -d 1s -o record-run
of record-gather "$stopgap" compare --run true --run true -n 2 -o record-gather
rm -f record-gather/compare-*
of record-replay "$stopgap" replay placement pbobench --n 100,200 --ops 2k --policy stopgap -o record-replay
cp "$read/hyperfine-one.json" a && cp a b
of record-compare "$stopgap" compare a b -o record-compare
of record-explain sh -c '"$1" explain "$2" --json >record-explain/r' - "$stopgap" "$trace/recorded.parquet"
of record-kernels "$stopgap" kernels lab/bzImage lab/bzImage --seeds 1 --workloads roundtrip -o record-kernels
of hyperfine cp "$read/hyperfine-one.json" hyperfine
of cyclictest-h cp "$read/cyclictest-h.txt" cyclictest-h
of cyclictest-q cp "$read/cyclictest-q.txt" cyclictest-q
of cyclictest-json cp "$read/cyclictest.json" cyclictest-json
of rtla cp "$read/rtla-timerlat-hist.txt" rtla
of hdr-log cp "$read/histogram.hlog" hdr-log
of numbers sh -c "printf '# a\n12.5\n13\n12.75\n14e0\n13.1\n' >numbers/n"
of journal sh -c "echo '{\"schema\":\"stopgap.journal/1\",\"pid\":4194303,\"start_time\":17,\"boot\":\"b\",\"namespace\":\"\",
    \"changes\":[{\"change\":\"file\",\"path\":\"/nonexistent/a\"},{\"change\":\"directory\",\"path\":\"/nonexistent/b\"}]}' >journal/j"
of elf-program cp /bin/true elf-program
echo '#!/usr/bin/env sh' >elf-program/script
of elf-library cp "$(dirname "$stopgap")/libstopgap_preload.so" elf-library
of elf-guest cp lab/guest elf-guest
of guest-serial cp lab/says guest-serial
of kernel-image cp lab/bzImage kernel-image

release=6.12.0-attack
mkdir -p tree/DEBIAN tree/boot tree/lib/modules/$release/kernel
printf 'Package: linux-image-attack\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@a>\nDescription: a\n' >tree/DEBIAN/control
cp lab/bzImage tree/boot/vmlinuz-$release
printf 'CONFIG_SMP=y\nCONFIG_DRM_VGEM=m\n' >tree/boot/config-$release
echo kernel/drm.ko >tree/lib/modules/$release/modules.builtin
printf '.section .modinfo,"a"\n.asciz "name=vgem"\n.asciz "depends="\n.asciz "vermagic=%s SMP"\n' $release |
    as -o tree/lib/modules/$release/kernel/vgem.ko -
for how in none gzip xz zstd; do
    of deb-$how dpkg-deb -Z$how --root-owner-group -b tree deb-$how/k.deb
done
