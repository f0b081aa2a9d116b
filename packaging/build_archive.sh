#!/usr/bin/env bash
# Builds the program for a target and packs it as pennon-VERSION-TARGET.tar.gz: build_archive.sh [TARGET [FOLDER]]
#
# The default target is x86_64-unknown-linux-musl: a static program that needs no C library of the system. It needs
#   rustup target add x86_64-unknown-linux-musl
#   pip install cargo-zigbuild==0.24.0 ziglang==0.15.2
# since the C code (SQLite, zstd, aws-lc) is compiled for the target too. A target of this machine needs neither.
# On musl, the program uses the C library's allocator, which returns memory later than the build for glibc (docs/operations.md).
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-x86_64-unknown-linux-musl}
folder=$(realpath -m "${2:-target/archives}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=pennon-$version-$target

if ! rustup target list --installed | grep -qx "$target"; then
    echo "the standard library of $target is not installed: rustup target add $target" >&2
    exit 3
fi
build=build
if [[ $target != "$(rustc -vV | sed -n 's/^host: //p')" ]]; then
    command -v cargo-zigbuild >/dev/null || { echo "cargo-zigbuild is not installed: pip install cargo-zigbuild==0.24.0 ziglang==0.15.2" >&2; exit 3; }
    build=zigbuild
fi
cargo "$build" --locked --profile dist --target "$target" -p pennon

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder" "$work/$name"
cp "${CARGO_TARGET_DIR:-target}/$target/dist/pennon" LICENSE-MIT LICENSE-APACHE "$work/$name/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$folder/$name.tar.gz" "$name"
(cd "$folder" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$folder/$name.tar.gz"
