//! Student's t of two sets' summary figures, and its table.

use std::fmt;

use super::general::General;

/// The confidence of the test, two-sided, as ministat names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Confidence {
    /// 80 %.
    C80,
    /// 90 %.
    C90,
    /// 95 %, what ministat takes when it is not told.
    #[default]
    C95,
    /// 98 %.
    C98,
    /// 99 %.
    C99,
    /// The level that ministat calls 99.5 %: its table holds the values of 99.8 %.
    C995,
}

impl Confidence {
    /// Every one, least first.
    pub const ALL: [Confidence; 6] = [
        Confidence::C80,
        Confidence::C90,
        Confidence::C95,
        Confidence::C98,
        Confidence::C99,
        Confidence::C995,
    ];

    /// In per cent, as it is named.
    #[must_use]
    pub fn percent(self) -> f64 {
        [80.0, 90.0, 95.0, 98.0, 99.0, 99.5][self as usize]
    }

    /// The one of that many per cent; `None` of any other.
    #[must_use]
    pub fn of_percent(percent: f64) -> Option<Confidence> {
        let same = |one: &Confidence| one.percent().total_cmp(&percent).is_eq();
        Confidence::ALL.into_iter().find(same)
    }

    /// The probability of a false alarm that it accepts, by its name.
    #[must_use]
    pub fn level(self) -> f64 {
        [0.2, 0.1, 0.05, 0.02, 0.01, 0.005][self as usize]
    }

    /// Student's t for so many degrees of freedom. Above 100 that of infinitely many, as in ministat, whose test is
    /// there a little too eager: 1.960 for 1.984 at 101.
    #[must_use]
    pub fn t(self, freedom: usize) -> f64 {
        // Two sets of three have four; fewer do not occur, and get the first row.
        let row = TABLE.get(freedom.saturating_sub(LEAST));
        row.unwrap_or(&INFINITE)[self as usize]
    }
}

/// Figures of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How many values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their variance, of a sample: the sum of squares over n - 1. Rounding may have made it less than 0.
    pub variance: f64,
}

impl Figures {
    /// Those that a table prints.
    #[must_use]
    pub fn new(n: usize, mean: f64, deviation: f64) -> Figures {
        Figures {
            n,
            mean,
            variance: deviation * deviation,
        }
    }
}

/// The pooled t-test of a later set against the first one: their means, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Student {
    /// With what confidence.
    pub confidence: Confidence,
    /// Mean of the later set less that of the first.
    pub difference: f64,
    /// Half the width of its interval: t times its standard error.
    pub error: f64,
    /// Mean of the first set, which per cent are of.
    pub first: f64,
    /// Pooled standard deviation.
    pub pooled: f64,
}

impl Student {
    /// Tests `later` against `first`. Two values a set are the least that have a variance.
    #[must_use]
    pub fn new(first: &Figures, later: &Figures, confidence: Confidence) -> Student {
        let (n1, n2) = (first.n as f64, later.n as f64);
        let freedom = (first.n + later.n).saturating_sub(2);
        let squares = (n2 - 1.0) * later.variance + (n1 - 1.0) * first.variance;
        let pooled = (squares / freedom as f64).sqrt();
        let standard = pooled * (1.0 / n2 + 1.0 / n1).sqrt();
        Student {
            confidence,
            difference: later.mean - first.mean,
            error: confidence.t(freedom) * standard,
            first: first.mean,
            pooled,
        }
    }

    /// Whether a difference is proven: it is larger than its error. Not where the error is unknown (NaN).
    #[must_use]
    pub fn differs(&self) -> bool {
        self.difference.abs() > self.error
    }

    /// Difference and error in per cent of the first set's mean.
    #[must_use]
    pub fn percent(&self) -> (f64, f64) {
        let of_first = |value: f64| value * 100.0 / self.first;
        (of_first(self.difference), of_first(self.error))
    }
}

/// ministat's lines, each with its line break.
impl fmt::Display for Student {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.confidence.percent();
        if !self.differs() {
            return writeln!(f, "No difference proven at {percent:.1}% confidence");
        }
        let six = |value| General::new(value, 6);
        let (difference, error) = self.percent();
        writeln!(f, "Difference at {percent:.1}% confidence")?;
        writeln!(f, "\t{} +/- {}", six(self.difference), six(self.error))?;
        writeln!(f, "\t{}% +/- {}%", six(difference), six(error))?;
        writeln!(f, "\t(Student's t, pooled s = {})", six(self.pooled))
    }
}

/// Degrees of freedom of the table's first row.
const LEAST: usize = 4;

/// The row for infinitely many degrees of freedom: the normal distribution.
const INFINITE: [f64; 6] = [1.282, 1.645, 1.960, 2.326, 2.576, 3.090];

/// Two-sided critical values of Student's distribution at 80, 90, 95, 98, 99 and 99.8 %, for [`LEAST`] to 100 degrees of
/// freedom (NIST/SEMATECH, *e-Handbook of Statistical Methods*, 1.3.6.7.2).
#[allow(clippy::approx_constant)] // one of them is near e
#[rustfmt::skip]
const TABLE: [[f64; 6]; 97] = [
    [1.533, 2.132, 2.776, 3.747, 4.604, 7.173], // 4
    [1.476, 2.015, 2.571, 3.365, 4.032, 5.893],
    [1.440, 1.943, 2.447, 3.143, 3.707, 5.208],
    [1.415, 1.895, 2.365, 2.998, 3.499, 4.782],
    [1.397, 1.860, 2.306, 2.896, 3.355, 4.499],
    [1.383, 1.833, 2.262, 2.821, 3.250, 4.296],
    [1.372, 1.812, 2.228, 2.764, 3.169, 4.143], // 10
    [1.363, 1.796, 2.201, 2.718, 3.106, 4.024],
    [1.356, 1.782, 2.179, 2.681, 3.055, 3.929],
    [1.350, 1.771, 2.160, 2.650, 3.012, 3.852],
    [1.345, 1.761, 2.145, 2.624, 2.977, 3.787],
    [1.341, 1.753, 2.131, 2.602, 2.947, 3.733],
    [1.337, 1.746, 2.120, 2.583, 2.921, 3.686],
    [1.333, 1.740, 2.110, 2.567, 2.898, 3.646],
    [1.330, 1.734, 2.101, 2.552, 2.878, 3.610],
    [1.328, 1.729, 2.093, 2.539, 2.861, 3.579],
    [1.325, 1.725, 2.086, 2.528, 2.845, 3.552], // 20
    [1.323, 1.721, 2.080, 2.518, 2.831, 3.527],
    [1.321, 1.717, 2.074, 2.508, 2.819, 3.505],
    [1.319, 1.714, 2.069, 2.500, 2.807, 3.485],
    [1.318, 1.711, 2.064, 2.492, 2.797, 3.467],
    [1.316, 1.708, 2.060, 2.485, 2.787, 3.450],
    [1.315, 1.706, 2.056, 2.479, 2.779, 3.435],
    [1.314, 1.703, 2.052, 2.473, 2.771, 3.421],
    [1.313, 1.701, 2.048, 2.467, 2.763, 3.408],
    [1.311, 1.699, 2.045, 2.462, 2.756, 3.396],
    [1.310, 1.697, 2.042, 2.457, 2.750, 3.385], // 30
    [1.309, 1.696, 2.040, 2.453, 2.744, 3.375],
    [1.309, 1.694, 2.037, 2.449, 2.738, 3.365],
    [1.308, 1.692, 2.035, 2.445, 2.733, 3.356],
    [1.307, 1.691, 2.032, 2.441, 2.728, 3.348],
    [1.306, 1.690, 2.030, 2.438, 2.724, 3.340],
    [1.306, 1.688, 2.028, 2.434, 2.719, 3.333],
    [1.305, 1.687, 2.026, 2.431, 2.715, 3.326],
    [1.304, 1.686, 2.024, 2.429, 2.712, 3.319],
    [1.304, 1.685, 2.023, 2.426, 2.708, 3.313],
    [1.303, 1.684, 2.021, 2.423, 2.704, 3.307], // 40
    [1.303, 1.683, 2.020, 2.421, 2.701, 3.301],
    [1.302, 1.682, 2.018, 2.418, 2.698, 3.296],
    [1.302, 1.681, 2.017, 2.416, 2.695, 3.291],
    [1.301, 1.680, 2.015, 2.414, 2.692, 3.286],
    [1.301, 1.679, 2.014, 2.412, 2.690, 3.281],
    [1.300, 1.679, 2.013, 2.410, 2.687, 3.277],
    [1.300, 1.678, 2.012, 2.408, 2.685, 3.273],
    [1.299, 1.677, 2.011, 2.407, 2.682, 3.269],
    [1.299, 1.677, 2.010, 2.405, 2.680, 3.265],
    [1.299, 1.676, 2.009, 2.403, 2.678, 3.261], // 50
    [1.298, 1.675, 2.008, 2.402, 2.676, 3.258],
    [1.298, 1.675, 2.007, 2.400, 2.674, 3.255],
    [1.298, 1.674, 2.006, 2.399, 2.672, 3.251],
    [1.297, 1.674, 2.005, 2.397, 2.670, 3.248],
    [1.297, 1.673, 2.004, 2.396, 2.668, 3.245],
    [1.297, 1.673, 2.003, 2.395, 2.667, 3.242],
    [1.297, 1.672, 2.002, 2.394, 2.665, 3.239],
    [1.296, 1.672, 2.002, 2.392, 2.663, 3.237],
    [1.296, 1.671, 2.001, 2.391, 2.662, 3.234],
    [1.296, 1.671, 2.000, 2.390, 2.660, 3.232], // 60
    [1.296, 1.670, 2.000, 2.389, 2.659, 3.229],
    [1.295, 1.670, 1.999, 2.388, 2.657, 3.227],
    [1.295, 1.669, 1.998, 2.387, 2.656, 3.225],
    [1.295, 1.669, 1.998, 2.386, 2.655, 3.223],
    [1.295, 1.669, 1.997, 2.385, 2.654, 3.220],
    [1.295, 1.668, 1.997, 2.384, 2.652, 3.218],
    [1.294, 1.668, 1.996, 2.383, 2.651, 3.216],
    [1.294, 1.668, 1.995, 2.382, 2.650, 3.214],
    [1.294, 1.667, 1.995, 2.382, 2.649, 3.213],
    [1.294, 1.667, 1.994, 2.381, 2.648, 3.211], // 70
    [1.294, 1.667, 1.994, 2.380, 2.647, 3.209],
    [1.293, 1.666, 1.993, 2.379, 2.646, 3.207],
    [1.293, 1.666, 1.993, 2.379, 2.645, 3.206],
    [1.293, 1.666, 1.993, 2.378, 2.644, 3.204],
    [1.293, 1.665, 1.992, 2.377, 2.643, 3.202],
    [1.293, 1.665, 1.992, 2.376, 2.642, 3.201],
    [1.293, 1.665, 1.991, 2.376, 2.641, 3.199],
    [1.292, 1.665, 1.991, 2.375, 2.640, 3.198],
    [1.292, 1.664, 1.990, 2.374, 2.640, 3.197],
    [1.292, 1.664, 1.990, 2.374, 2.639, 3.195], // 80
    [1.292, 1.664, 1.990, 2.373, 2.638, 3.194],
    [1.292, 1.664, 1.989, 2.373, 2.637, 3.193],
    [1.292, 1.663, 1.989, 2.372, 2.636, 3.191],
    [1.292, 1.663, 1.989, 2.372, 2.636, 3.190],
    [1.292, 1.663, 1.988, 2.371, 2.635, 3.189],
    [1.291, 1.663, 1.988, 2.370, 2.634, 3.188],
    [1.291, 1.663, 1.988, 2.370, 2.634, 3.187],
    [1.291, 1.662, 1.987, 2.369, 2.633, 3.185],
    [1.291, 1.662, 1.987, 2.369, 2.632, 3.184],
    [1.291, 1.662, 1.987, 2.368, 2.632, 3.183], // 90
    [1.291, 1.662, 1.986, 2.368, 2.631, 3.182],
    [1.291, 1.662, 1.986, 2.368, 2.630, 3.181],
    [1.291, 1.661, 1.986, 2.367, 2.630, 3.180],
    [1.291, 1.661, 1.986, 2.367, 2.629, 3.179],
    [1.291, 1.661, 1.985, 2.366, 2.629, 3.178],
    [1.290, 1.661, 1.985, 2.366, 2.628, 3.177],
    [1.290, 1.661, 1.985, 2.365, 2.627, 3.176],
    [1.290, 1.661, 1.984, 2.365, 2.627, 3.175],
    [1.290, 1.660, 1.984, 2.365, 2.626, 3.175],
    [1.290, 1.660, 1.984, 2.364, 2.626, 3.174], // 100
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean wake-up latencies and longest ones, 120 runs of 120 s each, in microseconds: mail 004 prints them.
    fn mail() -> [Figures; 6] {
        [
            Figures::new(120, 778.803_19, 186.158_75),
            Figures::new(120, 9_579.467_1, 9_552.865),
            Figures::new(120, 14_654.781, 4_466.699_7),
            Figures::new(120, 1_416.001_6, 1_679.396_5),
            Figures::new(120, 51_564.033, 5_044.637_5),
            Figures::new(120, 20_825_362.0, 80_352_645.0),
        ]
    }

    #[test]
    fn verdicts_of_the_mail_from_its_figures() {
        let [baseline, tip, mapping, lock_vma, baseline_max, tip_max] = mail();
        let mapping_max = Figures::new(120, 6_528_993.3, 26_278_426.0);
        for (first, later, difference, error) in [
            (&baseline, &tip, 8_800.66, 1_709.55),
            (&baseline, &mapping, 13_876.0, 799.9),
            (&baseline, &lock_vma, 637.2, 302.3),
            (&tip, &mapping, 5_075.3, 1_886.8),
            (&tip, &lock_vma, -8_163.0, 1_735.0),
            (&baseline_max, &tip_max, 2.077_38e7, 1.437_69e7),
            (&baseline_max, &mapping_max, 6.477e6, 4.702e6),
        ] {
            let test = Student::new(first, later, Confidence::C95);
            assert!(test.differs());
            // To the digits that were printed.
            assert!(
                (test.difference / difference - 1.0).abs() < 1e-4,
                "{test:?}"
            );
            assert!((test.error / error - 1.0).abs() < 5e-4, "{test:?}");
        }
        assert_eq!(
            Student::new(&baseline, &tip, Confidence::C95).to_string(),
            "Difference at 95.0% confidence\n\t8800.66 +/- 1709.55\n\t1130.02% +/- 219.51%\n\t(Student's t, pooled s = 6756.18)\n"
        );
        let last = Student::new(&tip_max, &mapping_max, Confidence::C95);
        assert_eq!(
            last.to_string(),
            "No difference proven at 95.0% confidence\n"
        );
        assert!((last.difference + 1.43e7).abs() < 5e4 && (last.error - 1.51e7).abs() < 5e4);
    }

    #[test]
    fn rows_of_the_table() {
        for (freedom, t) in [
            (4, 2.776),
            (10, 2.228),
            (30, 2.042),
            (100, 1.984),
            (101, 1.960),
        ] {
            assert!((Confidence::C95.t(freedom) - t).abs() < 1e-9, "{freedom}");
        }
        for columns in TABLE.windows(2) {
            for (above, below) in columns[0].iter().zip(columns[1]) {
                assert!(*above >= below);
            }
        }
        assert_eq!(Confidence::of_percent(99.5), Some(Confidence::C995));
        assert_eq!(Confidence::of_percent(97.0), None);
    }

    #[test]
    fn an_unknown_error_proves_nothing() {
        let broken = Figures {
            n: 3,
            mean: 0.1,
            variance: -1e-18,
        };
        let other = Figures {
            n: 3,
            mean: 0.2,
            variance: -1e-18,
        };
        assert!(!Student::new(&broken, &other, Confidence::C80).differs());
    }
}
