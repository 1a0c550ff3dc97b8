//! The VFIO container interface (`include/uapi/linux/vfio.h`), as far as the lab uses it.

use std::fs::{File, OpenOptions};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;

use rustix::ffi::c_void;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

use crate::mapping::Mapping;
use crate::{Context as _, Result};

/// `_IO(VFIO_TYPE, VFIO_BASE + n)`: type `;`, base 100, no size.
const fn request(number: u32) -> Opcode {
    0x3b64 + number
}

const SET_IOMMU: Opcode = request(2);
const GROUP_SET_CONTAINER: Opcode = request(4);
const GROUP_GET_DEVICE_FD: Opcode = request(6);
const DEVICE_GET_REGION_INFO: Opcode = request(8);
const IOMMU_MAP_DMA: Opcode = request(13);
/// `VFIO_TYPE1v2_IOMMU`.
const TYPE1_V2: usize = 3;
/// `VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE`.
const READ_WRITE: u32 = 3;
/// `VFIO_PCI_CONFIG_REGION_INDEX`.
const CONFIGURATION: u32 = 7;
/// Command register: answer to memory accesses, make requests.
const COMMAND: (u64, u16) = (4, 0b110);

/// A container with its groups: holding it makes them user space's.
#[derive(Debug)]
pub struct Container {
    file: File,
    groups: Vec<(u32, File)>,
}

/// A device of a held group.
#[derive(Debug)]
pub struct HeldDevice {
    file: File,
}

impl Container {
    /// A container that holds some groups, all of whose devices must have VFIO's driver.
    ///
    /// # Errors
    /// What the kernel said, with the group it said it of.
    pub fn hold(groups: &[u32]) -> Result<Self> {
        let file = open("/dev/vfio/vfio")?;
        let mut held = Vec::new();
        for &group in groups {
            let handle = open(&format!("/dev/vfio/{group}"))?;
            let container = std::os::fd::AsRawFd::as_raw_fd(&file);
            // SAFETY: the call reads one descriptor number, which the argument is.
            let call = unsafe { ioctl::Setter::<GROUP_SET_CONTAINER, RawFd>::new(container) };
            // SAFETY: the request matches its argument, and the descriptor is a VFIO group.
            unsafe { ioctl::ioctl(&handle, call) }
                .context(|| format!("cannot put group {group} into the container"))?;
            held.push((group, handle));
        }
        // SAFETY: the call takes a number by value.
        let call = unsafe { ioctl::IntegerSetter::<SET_IOMMU>::new_usize(TYPE1_V2) };
        // SAFETY: the request matches its argument, and the descriptor is a VFIO container.
        unsafe { ioctl::ioctl(&file, call) }
            .context(|| "cannot give the container an IOMMU domain".to_owned())?;
        Ok(Self { file, groups: held })
    }

    /// A device of one of the groups.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn device(&self, group: u32, address: &str) -> Result<HeldDevice> {
        let (_, handle) = self
            .groups
            .iter()
            .find(|(number, _)| *number == group)
            .ok_or_else(|| format!("group {group} is not held"))?;
        let name = std::ffi::CString::new(address)?;
        // SAFETY: the request reads a zero-terminated name, which lives until the call returns.
        let fd = unsafe { ioctl::ioctl(handle, GetDevice(&name)) }
            .context(|| format!("cannot get {address} of group {group}"))?;
        Ok(HeldDevice { file: File::from(fd) })
    }

    /// Maps memory of this process for the devices of the container.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn map(&self, memory: &Mapping, iova: u64) -> Result<()> {
        let call = MapDma {
            argsz: u32::try_from(size_of::<MapDma>())?,
            flags: READ_WRITE,
            vaddr: u64::try_from(memory.address())?,
            iova,
            size: u64::try_from(memory.length())?,
        };
        // SAFETY: the request reads this very structure.
        let call = unsafe { ioctl::Setter::<IOMMU_MAP_DMA, MapDma>::new(call) };
        // SAFETY: the request matches its argument; the memory named is a live mapping that outlives
        // the container in the caller, and the kernel holds its own reference to the device.
        unsafe { ioctl::ioctl(&self.file, call) }
            .context(|| format!("cannot map {} bytes at {iova:#x}", memory.length()))
    }
}

impl HeldDevice {
    /// Maps the beginning of a BAR, at most `most` bytes.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn bar(&self, index: u8, most: usize) -> Result<Mapping> {
        let region = self.region(u32::from(index))?;
        let length = usize::try_from(region.size).unwrap_or(usize::MAX).min(most);
        Mapping::of(&self.file, region.offset, length)
    }

    /// Lets the device answer and make requests.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn enable(&self) -> Result<()> {
        let (register, bits) = COMMAND;
        let at = self.region(CONFIGURATION)?.offset + register;
        let mut bytes = [0; 2];
        self.file.read_exact_at(&mut bytes, at)?;
        let value = u16::from_le_bytes(bytes) | bits;
        Ok(self.file.write_all_at(&value.to_le_bytes(), at)?)
    }

    fn region(&self, index: u32) -> Result<RegionInfo> {
        let mut info = RegionInfo {
            argsz: u32::try_from(size_of::<RegionInfo>())?,
            index,
            ..RegionInfo::default()
        };
        // SAFETY: the request reads and fills this very structure.
        let call = unsafe { ioctl::Updater::<DEVICE_GET_REGION_INFO, RegionInfo>::new(&mut info) };
        // SAFETY: the request matches its argument, and the descriptor is a VFIO device.
        unsafe { ioctl::ioctl(&self.file, call) }
            .context(|| format!("cannot ask for region {index}"))?;
        Ok(info)
    }
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
#[derive(Debug)]
struct MapDma {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Debug, Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// The request whose result is a new descriptor.
struct GetDevice<'a>(&'a std::ffi::CStr);

// SAFETY: the opcode takes a pointer to a zero-terminated name, which `as_ptr` gives, writes nothing
// through it, and on success returns a descriptor that nobody else owns.
unsafe impl Ioctl for GetDevice<'_> {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GROUP_GET_DEVICE_FD
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    unsafe fn output_from_ptr(fd: IoctlOutput, _: *mut c_void) -> rustix::io::Result<Self::Output> {
        // SAFETY: the kernel just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn open(path: &str) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.context(|| format!("cannot open {path}"))
}
