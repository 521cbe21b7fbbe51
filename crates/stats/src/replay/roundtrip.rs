//! What a replay of `roundtrip` tells: a row is one policy's wake-up rules on one cell, a client and a server that
//! talk in one way.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use super::chunks::Assumption;
use crate::record::Parameter;

/// The setting that all rows share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundtripSetting {
    /// Assumed cost of each step of a call.
    pub prices: Vec<Assumption>,
    /// The file of the record that the rows stand beside; absent where none was given.
    pub beside: Option<String>,
}

/// The figures of one policy on one cell. Switches are switch-outs of client and server; a request is a round trip:
/// from one flush of the client, of however many requests, to its last reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundtripRow {
    /// The cell in words.
    pub workload: String,
    /// Whose wake-up rules.
    pub policy: String,
    /// Always absent: cells have no ladder.
    pub n: Option<u64>,
    /// Round trips that were counted.
    pub operations: u64,
    /// The cell, by the names of its flags.
    pub parameters: BTreeMap<String, Parameter>,
    /// Switches a request, the mean; absent where none was counted.
    pub switches_per_request: Option<f64>,
    /// Half of the requests took no more.
    pub switches_p50: Option<u32>,
    /// 90 % of the requests took no more.
    pub switches_p90: Option<u32>,
    /// Switches a request by cause; they add up to `switches_per_request`.
    pub causes: BTreeMap<String, f64>,
    /// Times a request that a sleeper was woken because something came.
    pub data_wakes: Option<f64>,
    /// Times a request that a sleeper was woken because there was room to write.
    pub room_wakes: Option<f64>,
    /// CPU time of both a request, in microseconds. Modelled.
    pub cpu_us: Option<f64>,
    /// What a probe measured of the same cell, where its record was given and has it.
    pub measured: Option<Beside>,
    /// Unknown figures, and why.
    pub missing: Vec<Missing>,
}

/// A measured cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// Runs.
    pub runs: u64,
    /// Switches a request: the median of the runs.
    pub switches: f64,
    /// The least of a run.
    pub least: f64,
    /// The most of a run.
    pub most: f64,
    /// The model's switches over the median; absent where that is 0.
    pub factor: Option<f64>,
    /// Medians of the shares that the probe tells apart: `client blocked`, `server pre-empted` and so on.
    pub shares: BTreeMap<String, f64>,
}
