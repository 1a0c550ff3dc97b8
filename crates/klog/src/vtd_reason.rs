//! Fault reasons of VT-d, in the kernel's words (`drivers/iommu/intel/dmar.c`:
//! `dma_remap_fault_reasons`, `dma_remap_sm_fault_reasons`, `irq_remap_fault_reasons`).

/// The meaning of a fault reason; `None` for numbers that no kernel names.
#[inline]
pub(crate) fn text(code: u32) -> Option<&'static str> {
    // The two that storms consist of stand where their codes say.
    if let Some((0x05 | 0x06, text)) = usize::try_from(code).ok().and_then(|at| REASONS.get(at)) {
        return Some(text);
    }
    let at = REASONS.binary_search_by_key(&code, |(code, _)| *code).ok()?;
    REASONS.get(at).map(|(_, text)| *text)
}

/// Sorted by code.
const REASONS: [(u32, &str); 67] = [
    (0x00, "Software"),
    (0x01, "Present bit in root entry is clear"),
    (0x02, "Present bit in context entry is clear"),
    (0x03, "Invalid context entry"),
    (0x04, "Access beyond MGAW"),
    (0x05, "PTE Write access is not set"),
    (0x06, "PTE Read access is not set"),
    (0x07, "Next page table ptr is invalid"),
    (0x08, "Root table address invalid"),
    (0x09, "Context table ptr is invalid"),
    (0x0a, "non-zero reserved fields in RTP"),
    (0x0b, "non-zero reserved fields in CTP"),
    (0x0c, "non-zero reserved fields in PTE"),
    (0x0d, "PCE for translation request specifies blocking"),
    (0x20, "Detected reserved fields in the decoded interrupt-remapped request"),
    (0x21, "Interrupt index exceeded the interrupt-remapping table size"),
    (0x22, "Present field in the IRTE entry is clear"),
    (0x23, "Error accessing interrupt-remapping table pointed by IRTA_REG"),
    (0x24, "Detected reserved fields in the IRTE entry"),
    (0x25, "Blocked a compatibility format interrupt request"),
    (0x26, "Blocked an interrupt request due to source-id verification failure"),
    (0x30, "SM: Invalid Root Table Address"),
    (0x31, "SM: TTM 0 for request with PASID"),
    (0x32, "SM: TTM 0 for page group request"),
    (0x38, "SM: Error attempting to access Root Entry"),
    (0x39, "SM: Present bit in Root Entry is clear"),
    (0x3a, "SM: Non-zero reserved field set in Root Entry"),
    (0x40, "SM: Error attempting to access Context Entry"),
    (0x41, "SM: Present bit in Context Entry is clear"),
    (0x42, "SM: Non-zero reserved field set in the Context Entry"),
    (0x43, "SM: Invalid Context Entry"),
    (0x44, "SM: DTE field in Context Entry is clear"),
    (0x45, "SM: PASID Enable field in Context Entry is clear"),
    (0x46, "SM: PASID is larger than the max in Context Entry"),
    (0x47, "SM: PRE field in Context-Entry is clear"),
    (0x48, "SM: RID_PASID field error in Context-Entry"),
    (0x50, "SM: Error attempting to access the PASID Directory Entry"),
    (0x51, "SM: Present bit in Directory Entry is clear"),
    (0x52, "SM: Non-zero reserved field set in PASID Directory Entry"),
    (0x58, "SM: Error attempting to access PASID Table Entry"),
    (0x59, "SM: Present bit in PASID Table Entry is clear"),
    (0x5a, "SM: Non-zero reserved field set in PASID Table Entry"),
    (0x5b, "SM: Invalid Scalable-Mode PASID Table Entry"),
    (0x5c, "SM: ERE field is clear in PASID Table Entry"),
    (0x5d, "SM: SRE field is clear in PASID Table Entry"),
    (0x70, "SM: Error attempting to access first-level paging entry"),
    (0x71, "SM: Present bit in first-level paging entry is clear"),
    (0x72, "SM: Non-zero reserved field set in first-level paging entry"),
    (0x73, "SM: Error attempting to access FL-PML4 entry"),
    (0x74, "SM: First-level entry address beyond MGAW in Nested translation"),
    (0x75, "SM: Read permission error in FL-PML4 entry in Nested translation"),
    (0x76, "SM: Read permission error in first-level paging entry in Nested translation"),
    (0x77, "SM: Write permission error in first-level paging entry in Nested translation"),
    (0x78, "SM: Error attempting to access second-level paging entry"),
    (0x79, "SM: Read/Write permission error in second-level paging entry"),
    (0x7a, "SM: Non-zero reserved field set in second-level paging entry"),
    (0x7b, "SM: Invalid second-level page table pointer"),
    (0x7c, "SM: A/D bit update needed in second-level entry when set up in no snoop"),
    (0x80, "SM: Address in first-level translation is not canonical"),
    (0x81, "SM: U/S set 0 for first-level translation with user privilege"),
    (0x82, "SM: No execute permission for request with PASID and ER=1"),
    (0x83, "SM: Address beyond the DMA hardware max"),
    (0x84, "SM: Second-level entry address beyond the max"),
    (0x85, "SM: No write permission for Write/AtomicOp request"),
    (0x86, "SM: No read permission for Read/AtomicOp request"),
    (0x87, "SM: Invalid address-interrupt address"),
    (0x90, "SM: A/D bit update needed in first-level entry when set up in no snoop"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_found() {
        assert!(REASONS.is_sorted_by_key(|(code, _)| *code));
        assert_eq!(text(0x71), Some("SM: Present bit in first-level paging entry is clear"));
        assert_eq!(text(0x0e), None);
        assert_eq!(text(0x91), None);
    }
}
