#!/usr/bin/env bash
# image.sh BINDIR TAG: builds the Docker image TAG from a PostgreSQL server of this
# machine, where no image can be pulled. About 3 s and 70 MB.
set -euo pipefail

bin=$1 tag=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# The shell's tools are for the entrypoint and for testcontainers' check of the port.
tools=(sh id mkdir chown chmod cat rm sleep setpriv grep awk)

# copy PATH [PLACE]: a file, not the link to it.
copy() {
    local place=$root${2:-$1}
    [ -e "$place" ] && return
    mkdir -p "$(dirname "$place")"
    cp --dereference "$1" "$place"
}

# libraries FILE...: the shared libraries they load, by path.
libraries() {
    { ldd "$@" 2>/dev/null || true; } | grep -o '/[^ ):]*' | grep '\.so' | sort -u
}

skeleton() {
    mkdir -p "$root"/{etc,root,tmp,proc,sys,dev,run,var/lib/postgresql,usr/{bin,sbin,lib,lib64}}
    local dir
    for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
    ln -s ../run "$root/var/run"
    chmod 1777 "$root/tmp"
    printf '%s\n' root:x:0:0::/root:/bin/sh postgres:x:70:70::/var/lib/postgresql:/bin/sh > "$root/etc/passwd"
    printf '%s\n' root:x:0: postgres:x:70: > "$root/etc/group"
    copy "$here/entrypoint.sh" /usr/bin/docker-entrypoint.sh
    chmod 0755 "$root/usr/bin/docker-entrypoint.sh"
}

# tree DIR: a whole directory at the same path, without the JIT, whose LLVM is 100 MB.
tree() {
    [ -d "$1" ] || return 0
    mkdir -p "$root$1"
    tar -C "$1" -c --exclude='llvmjit*' --exclude='bitcode' --exclude='*.a' . | tar -C "$root$1" -x
}

server() {
    local prefix=${bin%/bin} dir
    case $prefix in
    /usr/lib/postgresql/*) tree "$bin"; tree "$prefix/lib"; tree "/usr/share/postgresql/${prefix##*/}" ;;
    *) tree "$prefix" ;;
    esac
    tree /usr/share/zoneinfo
}

skeleton
server
for tool in "${tools[@]}"; do copy "$(command -v "$tool")" "/usr/bin/$tool"; done
mapfile -t elf < <(find "$root" -type f \( -path '*/bin/*' -o -name '*.so*' \))
while read -r library; do
    case $library in "$root"/*) ;; *) copy "$library" ;; esac
done < <(libraries "${elf[@]}")
for library in /lib/*/libnss_files.so.2; do [ -e "$library" ] && copy "$library"; done

tar -C "$root" --numeric-owner --owner=0 --group=0 -cf "$work/rootfs.tar" .
rm -rf "$root"
cat > "$work/Dockerfile" <<END
FROM scratch
ADD rootfs.tar /
ENV PATH=$bin:/usr/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
END
DOCKER_BUILDKIT=0 docker build --quiet --tag "$tag" "$work"
