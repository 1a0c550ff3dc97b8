#!/bin/sh
# Runs in a Debian system with a kernel's headers, dkms and debhelper: builds the module's package from the
# sources in /root/peerway-map, installs it, looks at what DKMS made of it, and removes it. Nothing is loaded.
# Prints "WORD VALUE" lines for the lab; all else goes to standard error.
set -eu
kernel=$1
found() {
	find /lib/modules "/var/lib/dkms" /usr/src -name 'peerway*' 2>/dev/null | sort | tr '\n' ' '
}
cd /root/peerway-map
dpkg-buildpackage --build=binary --unsigned-changes --no-sign >&2
package=$(ls /root/peerway-map-dkms_*_all.deb)
echo "package $(basename "$package")"
echo "before $(found)"
DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 "$package" >&2
# In a system whose running kernel is another one, the package may leave this step to the operator.
dkms status peerway-map -k "$kernel" | grep -q installed || dkms install peerway-map/0.1.0 -k "$kernel" >&2
echo "status $(dkms status peerway-map -k "$kernel")"
module=$(find "/lib/modules/$kernel" -name 'peerway_map.ko*')
echo "module $module"
echo "vermagic $(modinfo -F vermagic "$module")"
echo "license $(modinfo -F license "$module")"
echo "signer $(modinfo -F signer "$module")"
DEBIAN_FRONTEND=noninteractive apt-get purge --yes --quiet=2 peerway-map-dkms >&2
echo "after $(found)"
