//! What a description says about one PCI function or port.

use peerway_core::snapshot::pci::Acs;

use super::model::{Link, Model};

/// ACS capability word of ordinary root and switch ports: everything but egress control.
pub const ACS_CAPABLE: u16 = 0x5f;

/// ACS control as Linux sets it at boot with an IOMMU: source validation, request and completion
/// redirect, upstream forwarding (`drivers/pci/pci.c`, `pci_std_enable_acs`).
pub const ACS_REDIRECT: Acs = Acs { capability: ACS_CAPABLE, control: 0x1d };

/// ACS present, every control bit clear.
pub const ACS_CLEAR: Acs = Acs { capability: ACS_CAPABLE, control: 0 };

/// Source validation alone: nothing is redirected.
pub const ACS_SOURCE_ONLY: Acs = Acs { capability: ACS_CAPABLE, control: 0x01 };

/// Memory that a function shows to the bus, placed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedBar {
    pub(super) index: u8,
    pub(super) start: u64,
}

/// Condition of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It answers.
    #[default]
    Healthy,
    /// Every read of its configuration space gives ones.
    Dead,
    /// Runtime-suspended: reading its configuration space would wake it.
    Asleep,
}

/// One function below a bus.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "device and function are the field's words")]
pub struct Function {
    pub(super) model: Model,
    pub(super) device: u8,
    pub(super) function: u8,
    pub(super) driver: Option<&'static str>,
    pub(super) group: Option<u32>,
    pub(super) domain: Option<&'static str>,
    pub(super) fixed: Vec<FixedBar>,
    pub(super) unassigned: bool,
    pub(super) current: Option<Link>,
    pub(super) condition: Condition,
    pub(super) ats_enabled: bool,
    pub(super) acs: Option<Acs>,
    pub(super) reset: &'static str,
    pub(super) hidden_capabilities: bool,
}

impl Function {
    /// A function of a kind: device 0, function 0, no driver, healthy.
    pub fn of(model: &Model) -> Self {
        Self {
            model: *model,
            device: 0,
            function: 0,
            driver: None,
            group: None,
            domain: None,
            fixed: Vec::new(),
            unassigned: false,
            current: model.link,
            condition: Condition::Healthy,
            ats_enabled: false,
            acs: None,
            reset: if model.link.is_some() { "flr bus" } else { "" },
            hidden_capabilities: false,
        }
    }

    /// Device and function number on its bus.
    #[must_use]
    pub fn at(mut self, device: u8, function: u8) -> Self {
        self.device = device;
        self.function = function;
        self
    }

    /// The driver that it is bound to.
    #[must_use]
    pub fn driver(mut self, name: &'static str) -> Self {
        self.driver = Some(name);
        self
    }

    /// Its IOMMU group; without this, a free number is taken.
    #[must_use]
    pub fn group(mut self, id: u32) -> Self {
        self.group = Some(id);
        self
    }

    /// The word in its group's `type`, where it is not the host's default.
    #[must_use]
    pub fn domain(mut self, word: &'static str) -> Self {
        self.domain = Some(word);
        self
    }

    /// Bus address of one BAR; without this, the next free window is taken.
    #[must_use]
    pub fn bar_at(mut self, index: u8, start: u64) -> Self {
        self.fixed.push(FixedBar { index, start });
        self
    }

    /// Firmware gave its 64-bit BARs no address.
    #[must_use]
    pub fn bars_unassigned(mut self) -> Self {
        self.unassigned = true;
        self
    }

    /// Link as trained, where it is not the best that the board can.
    #[must_use]
    pub fn link(mut self, link: Link) -> Self {
        self.current = Some(link);
        self
    }

    /// Its condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }

    /// Address Translation Services switched on.
    #[must_use]
    pub fn ats_enabled(mut self) -> Self {
        self.ats_enabled = true;
        self
    }

    /// Reset methods in the kernel's order.
    #[must_use]
    pub fn reset(mut self, methods: &'static str) -> Self {
        self.reset = methods;
        self
    }

    /// A hypervisor hides extended capabilities: numbers read 0, the chain goes on.
    #[must_use]
    pub fn hidden_capabilities(mut self) -> Self {
        self.hidden_capabilities = true;
        self
    }
}

/// Kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Root port.
    Root,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
}

impl PortKind {
    /// Device/port type of the PCI Express capability.
    pub(super) fn type_code(self) -> u16 {
        match self {
            Self::Root => 4,
            Self::Upstream => 5,
            Self::Downstream => 6,
        }
    }
}

/// Maker and type of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortModel {
    /// Vendor number.
    pub vendor: u16,
    /// Device number.
    pub device: u16,
}

/// Root port of EPYC 9004.
pub const EPYC_ROOT_PORT: PortModel = PortModel { vendor: 0x1022, device: 0x14ab };
/// Root port of Xeon Scalable, fourth generation.
pub const XEON_ROOT_PORT: PortModel = PortModel { vendor: 0x8086, device: 0x352a };
/// Root port of an Arm server.
pub const ARM_ROOT_PORT: PortModel = PortModel { vendor: 0x1def, device: 0xe101 };
/// Broadcom PEX89000 switch port.
pub const PEX89: PortModel = PortModel { vendor: 0x1000, device: 0xc030 };
/// PLX PEX 8747 switch port.
pub const PEX8747: PortModel = PortModel { vendor: 0x10b5, device: 0x8747 };
/// Port of a Thunderbolt 4 enclosure.
pub const THUNDERBOLT: PortModel = PortModel { vendor: 0x8086, device: 0x0b26 };

/// One port: a PCI-to-PCI bridge with a bus behind it.
#[derive(Clone, Debug)]
pub struct Port {
    pub(super) kind: PortKind,
    pub(super) model: PortModel,
    pub(super) device: u8,
    pub(super) function: u8,
    pub(super) secondary: u8,
    pub(super) acs: Option<Acs>,
    pub(super) link: Link,
    pub(super) current: Link,
    pub(super) group: Option<u32>,
    pub(super) external: bool,
}

impl Port {
    fn new(kind: PortKind, model: PortModel, device: u8, secondary: u8) -> Self {
        Self {
            kind,
            model,
            device,
            function: 0,
            secondary,
            acs: None,
            link: Link::GEN5_X16,
            current: Link::GEN5_X16,
            group: None,
            external: false,
        }
    }

    /// A root port, with the bus behind it and redirect as Linux sets it.
    pub fn root(model: PortModel, device: u8, secondary: u8) -> Self {
        Self::new(PortKind::Root, model, device, secondary).acs(ACS_REDIRECT)
    }

    /// An upstream port; these have no redirect of their own.
    pub fn upstream(model: PortModel, secondary: u8) -> Self {
        Self::new(PortKind::Upstream, model, 0, secondary)
    }

    /// A downstream port, with redirect as Linux sets it.
    pub fn downstream(model: PortModel, device: u8, secondary: u8) -> Self {
        Self::new(PortKind::Downstream, model, device, secondary).acs(ACS_REDIRECT)
    }

    /// Function number of the port.
    #[must_use]
    pub fn function(mut self, function: u8) -> Self {
        self.function = function;
        self
    }

    /// ACS capability and control words.
    #[must_use]
    pub fn acs(mut self, acs: Acs) -> Self {
        self.acs = Some(acs);
        self
    }

    /// No ACS capability at all.
    #[must_use]
    pub fn without_acs(mut self) -> Self {
        self.acs = None;
        self
    }

    /// Best link of the port.
    #[must_use]
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self.current = link;
        self
    }

    /// Link as trained, where it is not the best.
    #[must_use]
    pub fn trained(mut self, link: Link) -> Self {
        self.current = link;
        self
    }

    /// Its IOMMU group.
    #[must_use]
    pub fn group(mut self, id: u32) -> Self {
        self.group = Some(id);
        self
    }

    /// Devices behind it are outside the case (Thunderbolt): removable, and not trusted.
    #[must_use]
    pub fn external(mut self) -> Self {
        self.external = true;
        self
    }
}
