//! `replay chunks --log`: the log lines that mail 001 quotes.
//!
//! The Juno's blocks lie where the mail says; the smaller ones, of which it does not say, lie apart from these. Its
//! `iommu-dma` of 2015 went down all orders, as `sticky` does.

use std::fmt::Write;

use stopgap_chunks::iommu::{self, Line, PageSizes};
use stopgap_chunks::policy::{Chunk, Effort, Name, Request, Source};
use stopgap_models::chunks::experiment::Step;

use super::input::{Input, PAGE};
use crate::failure::Failure;

/// Pages of the Juno's frame buffer, 0x753000 bytes.
const JUNO_PAGES: u64 = 1_875;

/// Where the mail's device addresses begin: the top 8 MiB below 4 GiB.
const IOVA: u64 = 0xff80_0000;

/// Bytes of a section entry.
const SECTION: u64 = 2 << 20;

/// Buffers of each policy that are shown.
const BUFFERS: usize = 4;

/// Entries of one size that are shown one by one, as many as the mail shows.
const SHOWN: usize = 4;

/// Policies whose times the mail has, but `old`, of which a buffer takes seconds of ours.
pub(super) const POLICIES: [Name; 4] = [Name::Sticky, Name::Start64k, Name::Fold, Name::OnePage];

/// A block of every order.
struct Juno;

impl Source for Juno {
    fn allocate(&mut self, order: u32, _: Effort) -> Option<u64> {
        Some(match order {
            10 => 0x9_f540_0000 / PAGE,
            9 => 0xfa20_0000 / PAGE,
            8 => 0x9_f5a0_0000 / PAGE,
            small => 0xc000_0000 / PAGE + (2 << small),
        })
    }

    fn free(&mut self, _: Chunk) {}
}

/// The lines of both: the Juno's map and the times on the memory of `input`.
pub(super) fn text(input: &Input, policies: &[Name]) -> Result<String, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::error(format!("--log: {error}"));
    let mut text = juno().map_err(|error| wrong(&error))?;
    text.push_str("(made from blocks at the addresses that the mail gives; the times below are the model's)\n");
    for &policy in policies {
        let mut machine = input.memory.machine.clone();
        let builds = input.steps.iter().filter_map(|step| match *step {
            Step::Build { pages, .. } => Some(pages),
            Step::Release { .. } => None,
        });
        for pages in builds.take(BUFFERS) {
            let request = Request { pages, ..request() };
            let outcome = machine
                .build(policy, &request)
                .map_err(|error| wrong(&error))?;
            let _ = writeln!(
                text,
                "{policy}: alloc {} bytes: {:.0} ns",
                pages * PAGE,
                outcome.time_ns
            );
        }
    }
    Ok(text)
}

fn request() -> Request {
    Request {
        pages: JUNO_PAGES,
        page: PAGE,
        sizes: PageSizes::K4_M2_G1,
        single_pages: false,
    }
}

/// The map of the Juno's frame buffer, entries of one size after the fourth as `...`.
fn juno() -> Result<String, String> {
    let request = request();
    let built = Name::Sticky
        .build(&request, &mut Juno)
        .map_err(|error| error.to_string())?;
    let lines = || -> Result<Vec<Line>, iommu::MapError> {
        let maps = iommu::log(&built.runs(PAGE)?, request.sizes, IOVA)?;
        let wanted = Line::Wanted {
            bytes: request.bytes(),
            pages: request.pages,
        };
        let orders = built
            .chunks
            .iter()
            .map(|chunk| Line::Allocated { order: chunk.order });
        Ok(std::iter::once(wanted).chain(orders).chain(maps).collect())
    };
    let mut text = String::new();
    let mut small = 0;
    for line in lines().map_err(|error| error.to_string())? {
        small = match line {
            Line::Mapping { size, .. } if size < SECTION => small + 1,
            _ => 0,
        };
        match small {
            0..=SHOWN => text.push_str(&format!("{line}\n")),
            _ if small == SHOWN + 1 => text.push_str("...\n"),
            _ => {}
        }
    }
    Ok(text)
}
