#!/bin/sh
# Two kernels that differ by 20 dummy reads in do_mmap, for the check that `stopgap kernels` sees exactly those.
#
#   checks/kernel-regression/build.sh FOLDER [JOBS]
#
# leaves FOLDER/{stock,longer}.{bzImage,map,config}. Needs Debian's linux-source-6.12 (fetched here with apt-get,
# unpacked in FOLDER, never installed), gcc, make, bc, flex, bison and libelf-dev, 3 GB of disk, and about ten
# minutes. Not part of the ordinary tests. Nothing outside FOLDER is written.
#
# Equal but for the reads: one configuration, one compiler, one build folder, and a fixed user, host, version and
# time in the banner. `longer` is built over `stock`'s folder, so that only mm/mmap.c is compiled anew.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [JOBS]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
jobs=${2:-2}
package=linux-source-6.12

for tool in gcc make bc flex bison xz dpkg-deb; do
	command -v $tool >/dev/null || { echo "$0: needs $tool" >&2; exit 3; }
done
[ -e /usr/include/libelf.h ] || { echo "$0: needs libelf-dev" >&2; exit 3; }

if [ ! -e "$out/src/Makefile" ]; then
	cd "$out"
	ls $package"_"*.deb >/dev/null 2>&1 || apt-get download $package
	rm -rf package src
	dpkg-deb -x "$(ls $package"_"*.deb | tail -n 1)" package
	mkdir src.new
	tar -xJf package/usr/src/$package.tar.xz -C src.new --strip-components=1
	mv src.new src
	rm -rf package
fi

cd "$out/src"
export KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970' KBUILD_BUILD_VERSION=1
export KBUILD_BUILD_USER=stopgap KBUILD_BUILD_HOST=check

# From here on the folder holds the stock file again, whatever a build before left.
[ -e "$out/mmap.c.stock" ] || cp mm/mmap.c "$out/mmap.c.stock"
cmp -s "$out/mmap.c.stock" mm/mmap.c || cp "$out/mmap.c.stock" mm/mmap.c

make -s tinyconfig
scripts/kconfig/merge_config.sh -m .config "$here/config" >/dev/null
make -s olddefconfig
# What olddefconfig dropped is a fault here, not a kernel that is a little different.
grep '^CONFIG_' "$here/config" | while read -r line; do
	grep -qxF "$line" .config || { echo "$0: the configuration lost $line" >&2; exit 1; }
done

build() {
	make -s -j"$jobs" bzImage
	cp arch/x86/boot/bzImage "$out/$1.bzImage"
	cp System.map "$out/$1.map"
	cp .config "$out/$1.config"
	echo "$1: $(sha256sum <"$out/$1.bzImage")"
}

build stock

# The reads: after the length was checked, so every map call passes them once. `volatile`, so that the compiler
# leaves them; a loop, so that it cannot fold them: 20 times load, count, jump.
sed -i '/^unsigned long do_mmap(/,/^}/{
/^	\*populate = 0;$/i\
	volatile unsigned long dummy = 0;\
	int reads;\
\
	for (reads = 0; reads < 20; reads++)\
		(void)dummy;\

}' mm/mmap.c
[ "$(diff "$out/mmap.c.stock" mm/mmap.c | grep -c '^>')" = 6 ] || {
	echo "$0: do_mmap is not the function that this script knows" >&2
	exit 1
}
build longer
cp "$out/mmap.c.stock" mm/mmap.c
