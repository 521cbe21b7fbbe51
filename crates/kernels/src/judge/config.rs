//! Configurations of two kernels, and in what they differ.

use std::collections::BTreeMap;

use stopgap_events::order::{Inserted as _, SortRows};

use super::record::OptionDiffers;

/// Options of a configuration file: `CONFIG_X=value`, and `# CONFIG_X is not set` as `n`. All else is passed over, because
/// such files have comments of any form.
fn options(text: &str) -> BTreeMap<&str, &str> {
    let option = |line| {
        let line: &str = line;
        let set = line.split_once('=');
        let unset = || Some((line.strip_prefix("# ")?.strip_suffix(" is not set")?, "n"));
        set.or_else(unset)
    };
    text.lines()
        .filter_map(|line| option(line.trim()))
        .filter(|(name, _)| name.starts_with("CONFIG_"))
        .inserted()
}

/// In what two configurations differ: first the options that both name, which somebody decided; then those of one alone, which
/// the other kernel mostly does not know.
#[must_use]
pub fn differences(before: &str, after: &str) -> Vec<OptionDiffers> {
    let (before, after) = (options(before), options(after));
    let mut names: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let differs = names.into_iter().filter_map(|name| {
        let sides = [&before, &after].map(|side| side.get(name).map(|&value| value.to_owned()));
        let [before, after] = sides;
        (before != after).then(|| OptionDiffers {
            option: name.to_owned(),
            before,
            after,
        })
    });
    let mut differs: Vec<OptionDiffers> = differs.collect();
    differs.sort_rows_by_key(|option| option.before.is_none() || option.after.is_none());
    differs
}
