//! One word for each thing that people and scripts choose from.

use std::fmt::Display;

/// Returns the one of `choices` that is written `word`.
///
/// # Errors
/// A sentence that names `what` was looked for and all the choices.
pub fn one_of<T: Copy + Display>(what: &str, word: &str, choices: &[T]) -> Result<T, String> {
    let found = choices.iter().find(|choice| choice.to_string() == word);
    found.copied().ok_or_else(|| {
        let words: Vec<String> = choices.iter().map(T::to_string).collect();
        format!("unknown {what} '{word}'; there are {}", words.join(", "))
    })
}

/// Gives an enum without data its words: `ALL` in the order given, `word`, `Display` (padded as
/// asked) and `FromStr`, whose error names all the words. `$what` is what one of them is called
/// there.
#[macro_export]
macro_rules! words {
    ($name:ident, $what:literal, $($variant:ident $word:literal),+ $(,)?) => {
        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Its one word.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> ::std::result::Result<$name, String> {
                match word {
                    $($word => Ok($name::$variant),)+
                    _ => $crate::words::one_of($what, word, $name::ALL),
                }
            }
        }
    };
}
