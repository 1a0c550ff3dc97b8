//! Every parser, by name.

macro_rules! targets {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// A target by its name.
        pub fn by_name(name: &str) -> Option<fn(&[u8])> {
            match name {
                $(stringify!($name) => Some($name::run),)*
                _ => None,
            }
        }
    };
}

targets! {
    accelerator,
    acpi,
    cgroup,
    config_space,
    cpuinfo,
    host,
    host_file,
    import,
    klog_amd,
    klog_chunks,
    klog_device,
    klog_envelope,
    klog_json,
    klog_nvidia,
    klog_parts,
    klog_scan,
    klog_smmu,
    klog_vtd,
    libvirt,
    lxc,
    model_config,
    nvidia,
    peer_map,
    proxmox,
    sysfs,
    words,
}
