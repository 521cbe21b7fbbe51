//! Numbers as C's `printf` writes them with `%g`: the form of every figure of ministat.

use std::fmt;

/// A number with some significant digits, as `%.8g` of C: trailing zeros dropped, and with an exponent where that is
/// less than -4 or not less than the number of digits. `inf`, `-inf`; NaN as `-nan`, which is what glibc on x86 writes
/// of the root of a negative number.
#[derive(Debug, Clone, Copy)]
pub(super) struct General {
    value: f64,
    digits: usize,
}

impl General {
    /// `digits` is at least 1.
    pub(super) fn new(value: f64, digits: usize) -> General {
        General { value, digits }
    }
}

impl fmt::Display for General {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl General {
    fn text(&self) -> String {
        if self.value.is_nan() {
            return "-nan".to_owned();
        }
        if self.value.is_infinite() {
            return if self.value > 0.0 { "inf" } else { "-inf" }.to_owned();
        }
        // Rounding may carry into the next power of ten, so the exponent is that of the rounded number.
        let scientific = format!("{:.*e}", self.digits - 1, self.value);
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let digits = i32::try_from(self.digits).unwrap_or(i32::MAX);
        if exponent < -4 || exponent >= digits {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{}e{sign}{:02}", short(mantissa), exponent.unsigned_abs());
        }
        let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
        short(&format!("{:.decimals$}", self.value)).to_owned()
    }
}

/// Without zeros at the end of a fraction.
fn short(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use stopgap_events::random::Random;

    #[test]
    fn forms_of_the_standard() {
        for (value, digits, text) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (100_000.0, 6, "100000"),
            (1_000_000.0, 6, "1e+06"),
            (999_999.5, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (0.00001, 6, "1e-05"),
            (9_579.467_1, 8, "9579.4671"),
            (6.752_085e8, 8, "6.752085e+08"),
            (1e-300, 8, "1e-300"),
            (2.5, 1, "2"),
            (0.125, 2, "0.12"),
            (f64::NEG_INFINITY, 6, "-inf"),
            (f64::NAN, 6, "-nan"),
        ] {
            assert_eq!(General::new(value, digits).to_string(), text);
        }
        assert_eq!(format!("{:>13}", General::new(7.0, 8)), "            7");
    }

    /// Against the C library's own, through printf(1), whose decimal argument is read exactly to 17 digits.
    #[test]
    fn as_printf_writes_them() {
        let mut random = Random::new(5);
        let mut values: Vec<f64> = (0..2_000)
            .map(|_| f64::from_bits(random.bits()))
            .filter(|value| value.is_finite())
            .collect();
        values.extend((0..2_000).map(|_| {
            let power = i32::try_from(random.below(24)).expect("small") - 8;
            // Few digits: these are the ones that fall on ties.
            (random.below(20_001) as f64 - 10_000.0) / 8.0 * 10f64.powi(power)
        }));
        for digits in [6, 8] {
            let mut printf = Command::new("/usr/bin/printf");
            // printf(1) reads long doubles: hexadecimal, so that it reads just this number.
            printf.arg(format!("%.{digits}g\\n"));
            printf.args(values.iter().map(|value| hexadecimal(*value)));
            let output = match printf.output() {
                Ok(output) => output,
                Err(error) => {
                    let why = format!("/usr/bin/printf: {error}");
                    return stopgap_testing::skip(&stopgap_testing::Skip::program(why));
                }
            };
            let text = String::from_utf8(output.stdout).expect("ASCII");
            assert_eq!(text.lines().count(), values.len());
            for (value, line) in values.iter().zip(text.lines()) {
                assert_eq!(General::new(*value, digits).to_string(), line, "{value:e}");
            }
        }
    }

    fn hexadecimal(value: f64) -> String {
        let bits = value.to_bits();
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let fraction = bits & ((1 << 52) - 1);
        match (bits >> 52) & 0x7ff {
            0 => format!("{sign}0x0.{fraction:013x}p-1022"),
            exponent => format!(
                "{sign}0x1.{fraction:013x}p{}",
                exponent.cast_signed() - 1023
            ),
        }
    }
}
