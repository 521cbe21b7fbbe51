//! A flame graph of guest instructions, coloured by how two kernels differ.

use stopgap_report::html::escaped;
use stopgap_report::html::flame::{Look, Node, html};
use stopgap_report::text::thousands;

use crate::functions::Profile;

/// Returns the picture of `after`, coloured by what it differs from `before`; `None` where nothing was executed.
pub(crate) fn figure(title: &str, before: &Profile, after: &Profile) -> Option<String> {
    let mut root = Node::default();
    let each =
        |instructions: u64, profile: &Profile| instructions as f64 / profile.operations as f64;
    for stack in before.stacks.iter().filter(|_| before.operations > 0) {
        root.add(&stack.frames, each(stack.instructions, before), 0.0);
    }
    for stack in after.stacks.iter().filter(|_| after.operations > 0) {
        root.add(&stack.frames, 0.0, each(stack.instructions, after));
    }
    if root.after <= 0.0 || before.operations == 0 {
        return None;
    }
    let most = root.most(root.after);
    let look = |_: &str, node: &Node<'_>, _: usize| {
        let differs = node.differs();
        // Figures are whole numbers over a count of operations: what is smaller is rounding.
        let (class, strength) = if differs.abs() <= 1e-6 * (1.0 + node.after) {
            ("same", 1.0)
        } else {
            let strength = 0.2 + 0.6 * (differs.abs() / most).min(1.0);
            (if differs > 0.0 { "grew" } else { "shrank" }, strength)
        };
        let sign = if differs > 0.0 { "+" } else { "" };
        let [all, own, differs] = [node.after, node.own(), differs].map(instructions);
        let about = format!(
            "{all} guest instructions an operation with all it calls, {own} its own; {sign}{differs} to before"
        );
        Look {
            class,
            strength,
            about,
        }
    };
    let (old, new) = (instructions(root.before), instructions(root.after));
    let label = format!(
        "{title}: flame graph of {new} guest instructions an operation; the table below has the figures"
    );
    let (frames, cut) = html(&root, &look, &label);
    Some(format!(
        "<figure><figcaption><b>{}</b></figcaption>{frames}\
         <p class=\"about\">Width: guest instructions an operation on the later kernel, {new} in all (earlier: {old}). What is \
         called stands below its caller. <span class=\"grew\">Orange</span>: more than on the earlier kernel along the same \
         calls, <span class=\"shrank\">blue</span>: fewer, the stronger the more; grey: the same. What only the earlier kernel \
         executed has no width here; the table has it.{cut}</p></figure>\n",
        escaped(title),
    ))
}

/// Guest instructions with two decimals at most.
fn instructions(amount: f64) -> String {
    let rounded = (amount * 100.0).round() / 100.0;
    let whole = rounded.abs().trunc();
    let rest = rounded.abs() - whole;
    // whole, not negative, of a guest's counts
    let text = thousands(whole as u64);
    let decimals = if rest < 0.005 {
        String::new()
    } else {
        format!("{rest:.2}")[1..].trim_end_matches('0').to_owned()
    };
    let sign = if rounded < 0.0 { "-" } else { "" };
    format!("{sign}{text}{decimals}")
}

#[cfg(test)]
mod tests;
