//! Rebuilding NVIDIA's open kernel modules so that they always have the kernel map peer memory.

use crate::guide::Guide;
use crate::scene::Scene;

/// Steps for the version that is installed.
pub(crate) fn driver(scene: &Scene<'_>) -> Vec<Guide> {
    let version = scene
        .snapshot()
        .nvidia
        .version
        .known()
        .map_or("VERSION", |version| version.version.as_str());
    vec![
        Guide::new(
            format!("rebuild of the open modules {version}, with DKMS"),
            &["# the source that DKMS has of this version, and the function that decides"],
        )
        .line("dkms status")
        .line("grep -rln nv_dma_use_map_resource /usr/src --include=nv-dma.c")
        .line(
            "# in nv_dma_use_map_resource(): where the device has no table of DMA operations \
             (ops == NULL), the function answers no unless NV_DMA_IS_DIRECT_PRESENT is defined, \
             which no kernel from 5.9 on does. Let that branch return NV_TRUE. Leave the test of \
             NVreg_DmaRemapPeerMmio before it as it is: the parameter has to be 1",
        )
        .line(
            "# right in an identity domain too: dma_map_resource() then gives the bus address \
             itself",
        )
        .line("# copy the tree under a version of its own, so that an update does not mix them:")
        .line(format!("# PACKAGE_VERSION=\"{version}-map\" in its dkms.conf, then"))
        .line(format!("dkms install nvidia/{version}-map --force"))
        .line("# the package's name before the slash is the one that dkms status shows"),
        Guide::new(
            "reload, with nobody on the GPUs",
            &[
                "# stop the tenant first; another tenant on the same driver would be stopped too",
                "peerway scan",
                "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
                "modprobe nvidia nvidia_uvm",
                "peerway test",
                "# the initramfs may carry the old module: update-initramfs -u",
            ],
        ),
        Guide::new(
            "back again",
            &["# remove that version; the stock one is still installed, and reload"],
        )
        .line(format!("dkms remove nvidia/{version}-map --all"))
        .line(format!("dkms install nvidia/{version} --force")),
    ]
}
