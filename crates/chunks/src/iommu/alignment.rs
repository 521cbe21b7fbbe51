/// How a device address (IOVA) is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// To the buffer's length rounded up to a power of two: `iommu-dma`, Linux 6.12 `alloc_iova_fast` with
    /// `size_aligned` (`drivers/iommu/iova.c`).
    IommuDma,
    /// To the same, but to 256 base pages at most (1 MiB with 4 KiB pages): Arm's own `dma-mapping.c`,
    /// `__alloc_iova` with the default of `CONFIG_ARM_DMA_IOMMU_ALIGNMENT`. A 2 MiB entry needs luck.
    Arm,
}

impl Alignment {
    /// The alignment in bytes of a buffer of `length` bytes where a base page has `page`. `None` where it is no
    /// power of two below 2^64.
    #[must_use]
    pub fn bytes(self, length: u64, page: u64) -> Option<u64> {
        let pages = length.div_ceil(page.max(1)).checked_next_power_of_two()?;
        let most = match self {
            Alignment::IommuDma => u64::MAX,
            Alignment::Arm => 1 << 8,
        };
        pages.min(most).checked_mul(page)
    }
}

/// Where [`Alignment::IommuDma`] aligns a buffer of `length` bytes, for any base page. `None` where
/// the length cannot be rounded up below 2^64.
#[must_use]
pub fn iova_alignment(length: u64) -> Option<u64> {
    length.checked_next_power_of_two()
}

#[cfg(test)]
mod tests;
