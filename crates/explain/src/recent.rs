//! Cache of results by text. Most events share few texts, and comparing the address of a text is cheap.

use std::rc::Rc;

use stopgap_trace::Text;

/// Slots of the cache: a power of two.
const PLACES: usize = 256;

/// Results for recent texts, by address. For other texts the result is computed again.
#[derive(Debug)]
pub(crate) struct Recent<T>(Vec<Option<(Text, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Vec::new())
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the result of `make` for a text.
    pub(crate) fn get(&mut self, text: &Text, make: impl FnOnce(&Text) -> T) -> T {
        if self.0.is_empty() {
            self.0.resize_with(PLACES, || None);
        }
        let address = Rc::as_ptr(text).cast::<u8>() as usize;
        let place = &mut self.0[(address >> 4 ^ address >> 12) % PLACES];
        // The cache keeps the text, so no other text gets its address.
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

/// Returns whether two texts are equal. Texts that share memory are not compared byte by byte.
pub(crate) fn is_same(one: &Text, other: &Text) -> bool {
    Rc::ptr_eq(one, other) || one == other
}
