//! The driver of `lab/kmod-board`, whose boards do not come up under an identity domain.

use peerway_lab_protocol::Step;

use super::{CHANGED, shell};

/// Where the module is in the guest.
pub(super) const PLACE: &str = "/lab/modules/lab_board.ko";

/// Gives the first changed device to it, without an override that stays.
pub(super) fn given(name: &str) -> Step {
    let line = format!(
        "set -e; insmod {PLACE}; d={device}; f=/sys/bus/pci/devices/$d; echo $d > $f/driver/unbind; \
         echo lab_board > $f/driver_override; echo $d > /sys/bus/pci/drivers_probe; \
         echo > $f/driver_override; readlink $f/driver",
        device = CHANGED[0],
    );
    shell(name, &line)
}
