//! Assumptions, by the names under which they are varied.

use stopgap_stats::replay::chunks::Assumption;

use super::device::Device;
use crate::chunks::cost::Costs;

/// The number of entries of the IOMMU's TLB.
pub(super) const TLB_ENTRIES: &str = "TLB entries";
/// A walk of the IOMMU's page table.
pub(super) const WALK: &str = "walk";

/// A price of the kernel's work.
pub(super) struct Price {
    /// Its name.
    pub(super) name: &'static str,
    /// Its name among [`Costs::named`].
    cost: &'static str,
    unit: &'static str,
    of: fn(&mut Costs) -> &mut f64,
}

/// All of them.
pub(super) const PRICES: [Price; 5] = [
    Price {
        name: "call",
        cost: "call_ns",
        unit: "us a call of the allocator",
        of: |costs| &mut costs.call_ns,
    },
    Price {
        name: "clear",
        cost: "clear_page_ns",
        unit: "us a page",
        of: |costs| &mut costs.clear_page_ns,
    },
    Price {
        name: "reclaim",
        cost: "reclaim_page_ns",
        unit: "us a page",
        of: |costs| &mut costs.reclaim_page_ns,
    },
    Price {
        name: "scan",
        cost: "scan_block_ns",
        unit: "us for 512 pages",
        of: |costs| &mut costs.scan_block_ns,
    },
    Price {
        name: "move",
        cost: "move_page_ns",
        unit: "us a page",
        of: |costs| &mut costs.move_page_ns,
    },
];

impl Price {
    /// `costs` with this one times `factor`.
    pub(super) fn scaled(&self, mut costs: Costs, factor: f64) -> Costs {
        *(self.of)(&mut costs) *= factor;
        costs
    }

    /// Where its value comes from.
    fn why(&self, costs: &Costs) -> &'static str {
        match self.name {
            "reclaim" if *costs == Costs::THREAD => "fitted: one-page takes 0.25 s in mail 001",
            "reclaim"
                if costs.reclaim_page_ns.to_bits() == Costs::RECENT.reclaim_page_ns.to_bits() =>
            {
                "measured on Linux 6.18"
            }
            _ => "assumed",
        }
    }
}

/// The prices of the kernel's work, and what is taken for the device's TLB. `source` tells where a price of that name
/// among [`Costs::named`] comes from, where it is not of the model's own list.
#[must_use]
pub fn assumptions(
    costs: &Costs,
    device: &Device,
    source: &dyn Fn(&str) -> Option<String>,
) -> Vec<Assumption> {
    let mut values = *costs;
    let mut all: Vec<Assumption> = PRICES
        .iter()
        .map(|price| {
            let value = *(price.of)(&mut values) / 1e3;
            let why = source(price.cost).unwrap_or_else(|| price.why(costs).to_owned());
            Assumption::new(price.name, value, price.unit, &why)
        })
        .collect();
    let tlb = device.tlb();
    if let Some(&entries) = tlb.entries.get(&device.sizes.smallest()) {
        let unit = "for the smallest page, half as many for each larger one";
        all.push(Assumption::new(
            TLB_ENTRIES,
            f64::from(entries),
            unit,
            "assumed",
        ));
    }
    all.push(Assumption::new(WALK, tlb.walk_ns as f64, "ns", "assumed"));
    all
}
