//! Doug Anderson's second patch in mail 001: single pages, then by frame number, so that neighbours become
//! one run.
//!
//! The chunks stay the single pages that were taken; [`iommu::map`](crate::iommu::map) joins them. Dropped
//! in the series' later versions as not worth it: larger entries need a run that is aligned as well, and
//! sorting aligns nothing.

use super::{BuildError, Built, Request, Source, Steps};

pub(super) fn build(request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
    let mut built = Steps::single().build(request, source)?;
    built.chunks.sort_unstable_by_key(|chunk| chunk.frame);
    Ok(built)
}
