//! Whatever tree of switches is described, it hangs together as firmware must lay it out.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::sync::Arc;

use peerway_read::root::Root;
use peerway_sim::build::function::{ACS_CLEAR, EPYC_ROOT_PORT, Function, PEX89, Port};
use peerway_sim::build::model::{A6000, BCM57416, NVME, RTX_PRO_6000};
use peerway_sim::build::{Bus, HostBuilder, Iommu, cpu, kernels};
use proptest::prelude::*;

/// Kinds of endpoints, and how a switch branches: each number is the children of one port.
fn add(host: &mut HostBuilder, bus: Bus, shape: &[u8], next: &mut u8) {
    let Some((count, rest)) = shape.split_first() else {
        let model = [&A6000, &BCM57416, &NVME, &RTX_PRO_6000][usize::from(*next % 4)];
        host.device(bus, Function::of(model));
        return;
    };
    let mut take = || {
        *next += 1;
        *next
    };
    let upstream = Port::upstream(PEX89, take());
    let below: Vec<Port> =
        (0..*count).map(|index| Port::downstream(PEX89, index, take()).acs(ACS_CLEAR)).collect();
    for bus in host.switch(bus, upstream, &below) {
        add(host, bus, &rest[..rest.len().min(1)], next);
    }
}

struct Seen {
    path: Vec<String>,
    lines: Vec<(u64, u64, u64)>,
    buses: [u8; 3],
}

fn functions(root: &Root) -> Vec<Seen> {
    let names = root.list("/sys/bus/pci/devices").unwrap();
    let one = |name: &String| {
        let link = root.link(&format!("/sys/bus/pci/devices/{name}")).unwrap();
        let directory = root.directory(&format!("/sys/bus/pci/devices/{name}")).unwrap();
        let number = |word: &str| u64::from_str_radix(&word[2..], 16).unwrap();
        let lines = directory.text("resource").unwrap();
        let lines = lines.lines().map(|line| {
            let words: Vec<u64> = line.split(' ').map(number).collect();
            (words[0], words[1], words[2])
        });
        let buses = directory.read_at("config", 0x18, 3).unwrap();
        Seen {
            path: link.split('/').skip(5).map(str::to_owned).collect(),
            lines: lines.collect(),
            buses: buses.try_into().unwrap(),
        }
    };
    names.iter().map(one).collect()
}

fn holds(host: &HostBuilder) {
    let root = Root::recorded(Arc::new(host.tree().unwrap()));
    let all = functions(&root);
    for bridge in all.iter().filter(|one| one.lines.len() == 17) {
        let [_, secondary, subordinate] = bridge.buses;
        for below in all
            .iter()
            .filter(|one| one.path.len() > bridge.path.len() && one.path.starts_with(&bridge.path))
        {
            let name = below.path.last().unwrap();
            let bus = u8::from_str_radix(&name[5..7], 16).unwrap();
            assert!((secondary..=subordinate).contains(&bus), "{name} below {:?}", bridge.path);
            for &(start, end, flags) in
                below.lines.iter().take(6).filter(|line| line.2 & 0x200 != 0)
            {
                let window = bridge.lines[if flags & 0x2000 != 0 { 15 } else { 14 }];
                assert!(
                    window.0 <= start && end <= window.1,
                    "{name} {start:#x} not in {window:x?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn buses_and_windows_hold_what_is_below(
        shapes in proptest::collection::vec(proptest::collection::vec(1_u8..4, 0..3), 1..4),
    ) {
        let mut host = HostBuilder::new("any", kernels::DEBIAN_6_12, cpu::EPYC_9334);
        host.iommu(Iommu::AMD, "DMA-FQ");
        for (domain, shape) in (0..).zip(&shapes) {
            let root = host.root_bus(domain, 0, 0);
            let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, 1).function(1));
            let mut next = 1;
            add(&mut host, port, shape, &mut next);
        }
        holds(&host);
    }
}

#[test]
fn a_bus_below_its_own_number_is_refused() {
    let mut host = HostBuilder::new("wrong", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    let root = host.root_bus(0, 0x20, 0);
    host.port(root, Port::root(EPYC_ROOT_PORT, 1, 0x10));
    let error = host.tree().map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "cannot build the host: the bus behind 0000:20:01.0 is not above its own");
}

#[test]
fn two_functions_at_one_address_are_refused() {
    let mut host = HostBuilder::new("wrong", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    let root = host.root_bus(0, 0x20, 0);
    let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, 0x21));
    host.device(port, Function::of(&NVME));
    host.device(port, Function::of(&NVME));
    let error = host.tree().map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("0000:21:00.0/vendor\" is described twice"), "{error}");
}
