//! cyclictest.

use std::process::{Command, Stdio};

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;

use super::sides::Side;
use super::{INTERVAL, PRIORITY};

/// The longest lateness that its histogram tells, microseconds.
const HISTOGRAM: u64 = 1_000_000;

/// The program's name and version.
pub(super) fn version() -> Result<String, Failure> {
    let missing = |error| Failure::error(format!("cyclictest: {error}; install rt-tests"));
    let output = Command::new("cyclictest")
        .arg("--help")
        .output()
        .map_err(missing)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| line.starts_with("cyclictest"));
    Ok(first.unwrap_or("cyclictest").trim().to_owned())
}

/// A run on `cpu` for `time`, whole seconds.
pub(super) fn run(cpu: u32, time: Nanos) -> Result<Side, Failure> {
    let failed = |why: String| Failure::error(format!("cyclictest: {why}"));
    let seconds = time.0 / 1_000_000_000;
    let output = Command::new("cyclictest")
        .args(["-q", "-m", "-t", "1"])
        .args(["-a", &cpu.to_string()])
        .args(["-p", &PRIORITY.to_string()])
        .args(["-i", &(INTERVAL.0 / 1_000).to_string()])
        .args(["-D", &seconds.to_string()])
        .args(["-h", &HISTOGRAM.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().next().unwrap_or_default();
        return Err(failed(format!("{} {first}", output.status)));
    }
    samples(&String::from_utf8_lossy(&output.stdout)).map_err(failed)
}

/// What its histogram holds: `000017 000003`, microseconds and samples a line.
fn samples(text: &str) -> Result<Side, String> {
    let mut side = Side::default();
    for line in text.lines() {
        let max = line.strip_prefix("# Max Latencies:");
        if let Some(max) = max {
            side.max_ns = number(max.trim())? * 1_000;
        }
        if let Some(beyond) = line.strip_prefix("# Histogram Overflows:")
            && number(beyond.trim())? > 0
        {
            return Err(format!(
                "a wake-up later than its histogram's {HISTOGRAM} us"
            ));
        }
        let Some((late, count)) = line.split_once(' ') else {
            continue;
        };
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            let (late, count) = (number(late)?, number(count.trim())?);
            side.add(late.saturating_mul(1_000), count);
        }
    }
    if side.samples == 0 {
        return Err("no sample in what it printed".to_owned());
    }
    Ok(side)
}

fn number(word: &str) -> Result<u64, String> {
    let number = word.parse::<u64>();
    number.map_err(|error| format!("'{word}' in its histogram: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_histogram_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000004 000003\n012000 000001\n\
                    # Total: 000000004\n# Min Latencies: 00004\n# Avg Latencies: 03003\n# Max Latencies: 12000\n\
                    # Histogram Overflows: 00000\n";
        let side = samples(text).unwrap();
        assert_eq!((side.samples, side.max_ns), (4, 12_000_000));
        assert!((side.mean_us() - 3_003.0).abs() < 1e-9);
        assert_eq!(side.above_10_ms, 1);
        assert!(samples("").unwrap_err().contains("no sample"));
        assert!(samples("000004 x").unwrap_err().contains("'x'"));
        assert!(
            samples("# Histogram Overflows: 00002")
                .unwrap_err()
                .contains("later")
        );
    }
}
