//! The extension module `stopgap._stopgap`: what the command's library makes, for Python. The package beside it, `stopgap`,
//! checks arguments, makes command lines of them, and is what people call.

mod call;
mod document;
mod events;
mod fleet;
mod identity;
mod table;

use pyo3::prelude::*;

/// Traces explained, replayed and compared; see the package `stopgap`.
#[pymodule]
mod _stopgap {
    #[pymodule_export]
    use crate::call::Error;
    #[pymodule_export]
    use crate::document::{Document, compare, explain, ministat, replay};
    #[pymodule_export]
    use crate::events::{columns, read_trace};
    #[pymodule_export]
    use crate::fleet::{
        compare_hosts, compare_pairs, keep_to_one_cpu, median_over_hosts, page, pairs_suffice,
        ratio_over_hosts, share_of_hosts, version,
    };
    #[pymodule_export]
    use crate::identity::{busiest, identity, identity_of};
    #[pymodule_export]
    use crate::table::Table;
}
