//! What was worked out of texts that came lately. Most events share few texts, and a text's address is compared in no time.

use std::rc::Rc;

use stopgap_trace::Text;

/// Texts that are remembered: a power of two.
const PLACES: usize = 256;

/// What was made of the texts of the last events, by their address. Other texts are worked out again.
#[derive(Debug)]
pub(crate) struct Recent<T>(Vec<Option<(Text, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Vec::new())
    }
}

impl<T: Clone> Recent<T> {
    /// Returns what `make` makes of a text.
    pub(crate) fn get(&mut self, text: &Text, make: impl FnOnce(&Text) -> T) -> T {
        if self.0.is_empty() {
            self.0.resize_with(PLACES, || None);
        }
        let address = Rc::as_ptr(text).cast::<u8>() as usize;
        let place = &mut self.0[(address >> 4 ^ address >> 12) % PLACES];
        // The text is kept, so that nothing else comes to its address.
        if let Some((known, made)) = place
            && Rc::ptr_eq(known, text)
        {
            return made.clone();
        }
        let made = make(text);
        *place = Some((Text::clone(text), made.clone()));
        made
    }
}

/// Returns whether two texts are the same; one that is shared is not looked at.
pub(crate) fn is_same(one: &Text, other: &Text) -> bool {
    Rc::ptr_eq(one, other) || one == other
}
