#!/bin/sh
# This fetches the kernel of the virtual machine that TestPausedGuest starts, Debian's for
# clouds, and the modules of its network card, into e2e/guest/bin. It does so once, needs no
# root, and installs nothing.
set -eu

home=$(cd "$(dirname "$0")" && pwd)
bin=$home/bin
[ ! -e "$bin/vmlinuz" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$work"

package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$package" ] || {
	echo "kernel: apt knows no linux-image-cloud-amd64: apt-get update" >&2
	exit 1
}
echo "kernel: fetching $package" >&2
apt-get download -qq -o APT::Sandbox::User=root "$package"
dpkg -x ./*.deb root

mkdir -p "$bin/modules"
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net; do
	find root -name "$module.ko*" -exec cp {} "$bin/modules/" \;
done
find "$bin/modules" -name '*.xz' -exec xz -d {} \;
# A directory that has it is complete.
cp root/boot/vmlinuz-* "$bin/vmlinuz.new"
mv "$bin/vmlinuz.new" "$bin/vmlinuz"
