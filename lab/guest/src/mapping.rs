//! Device memory in this process: the only module, beside the VFIO calls, that needs `unsafe`.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{Context as _, Result};

/// A shared mapping of a device's BAR.
///
/// Every access is volatile and of eight bytes, since a device may have effects on any of them.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread, and all accesses are volatile loads and stores of the
// device's memory, which the device changes on its own at any time in any case.
unsafe impl Send for Mapping {}

// SAFETY: as above; two threads at the same word read and write it as two devices would.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn of(file: impl AsFd, offset: u64, length: usize) -> Result<Self> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, flags, MapFlags::SHARED, file, offset) }
                .context(|| format!("cannot map {length} bytes of device memory"))?;
        let base = NonNull::new(base.cast()).ok_or("device memory was mapped at address 0")?;
        Ok(Self { base, length })
    }

    /// Bytes in the mapping.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where the mapping begins in this process, for calls that take a user address.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// Outside the mapping, or not aligned.
    pub fn load(&self, offset: usize) -> Result<u64> {
        let at = self.at(offset)?;
        // SAFETY: `at` checked that the word lies inside the live mapping and is aligned.
        Ok(u64::from_le(unsafe { at.read_volatile() }))
    }

    /// Writes eight bytes.
    ///
    /// # Errors
    /// Outside the mapping, or not aligned.
    pub fn store(&self, offset: usize, value: u64) -> Result<()> {
        let at = self.at(offset)?;
        // SAFETY: `at` checked that the word lies inside the live mapping and is aligned.
        unsafe { at.write_volatile(value.to_le()) };
        Ok(())
    }

    fn at(&self, offset: usize) -> Result<NonNull<u64>> {
        if !offset.is_multiple_of(8) || offset.checked_add(8).is_none_or(|end| end > self.length) {
            return Err(
                format!("offset {offset:#x} is no word of a {} byte mapping", self.length).into()
            );
        }
        // SAFETY: the offset was just checked to lie inside the mapping.
        Ok(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of a mapping that this value made and nobody else unmaps.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours was gone: {unmapped:?}");
    }
}
