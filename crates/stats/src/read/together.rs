//! One figure of all setups of a record.
//!
//! A probe measures many setups for a moment each (the clients, servers and work of round trips, the sizes and ways of building
//! buffers). The median of one of them rests on some hundred samples, and differs by 10 % from occasion to occasion though nothing
//! was changed; all of them together differ by 0.2 to 5 %.

use super::Read;

/// A series in every setup in which a record measured it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setups {
    /// The name of the series.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Each setup, as the series is asked for, and the median of its runs.
    pub each: Vec<(String, f64)>,
}

/// A number of all records.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    /// Its name: that of the series, and how many setups.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The geometric mean of the setups, record by record.
    pub values: Vec<f64>,
}

/// Takes the setups together that all records have, with a figure above 0. Series with fewer than two such setups are left out:
/// the runs say that already.
#[must_use]
pub fn together(reads: &[&Read]) -> Vec<Together> {
    let Some((first, others)) = reads.split_first() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for series in &first.setups {
        let same = |read: &&&Read| -> Option<usize> {
            let is_same = |own: &Setups| own.name == series.name && own.unit == series.unit;
            read.setups.iter().position(is_same)
        };
        let Some(places) = others
            .iter()
            .map(|read| same(&read))
            .collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let mut logarithms = vec![0.0; reads.len()];
        let mut setups = 0u32;
        for (setup, value) in &series.each {
            let of_others = others.iter().zip(&places).map(|(read, &place)| {
                let each = &read.setups[place].each;
                each.binary_search_by(|(own, _)| own.cmp(setup))
                    .ok()
                    .map(|at| each[at].1)
            });
            let values: Option<Vec<f64>> = std::iter::once(Some(*value)).chain(of_others).collect();
            let Some(values) = values.filter(|all| all.iter().all(|v| *v > 0.0 && v.is_finite()))
            else {
                continue;
            };
            setups += 1;
            for (sum, value) in logarithms.iter_mut().zip(values) {
                *sum += value.ln();
            }
        }
        if setups >= 2 {
            let mean = |sum: &f64| (sum / f64::from(setups)).exp();
            all.push(Together {
                name: format!("{}, {setups} setups", series.name),
                unit: series.unit.clone(),
                values: logarithms.iter().map(mean).collect(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    fn read(name: &str, each: &[(&str, f64)]) -> Read {
        let each = each.iter().map(|(setup, v)| ((*setup).to_owned(), *v));
        Read {
            setups: vec![Setups {
                name: name.to_owned(),
                unit: "ns".to_owned(),
                each: each.collect(),
            }],
            ..Read::new(Format::Stopgap)
        }
    }

    #[test]
    fn takes_only_what_all_have() {
        let one = read("map", &[("a", 2.0), ("b", 8.0), ("c", 5.0), ("d", 0.0)]);
        let two = read("map", &[("a", 4.0), ("b", 16.0), ("d", 7.0)]);
        let all = together(&[&one, &two]);
        assert_eq!(all[0].name, "map, 2 setups");
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(all[0].values[0], 4.0) && near(all[0].values[1], 8.0));
    }

    #[test]
    fn says_nothing_where_there_is_nothing_in_common() {
        let one = read("map", &[("a", 2.0), ("b", 8.0)]);
        assert_eq!(
            together(&[&one, &read("unmap", &[("a", 2.0), ("b", 8.0)])]),
            []
        );
        assert_eq!(
            together(&[&one, &read("map", &[("a", 2.0), ("c", 8.0)])]),
            []
        );
        assert_eq!(together(&[]), []);
    }
}
