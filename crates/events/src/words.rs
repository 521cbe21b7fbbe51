//! One word for each thing that people and scripts choose from.

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
                $name::ALL
                    .iter()
                    .copied()
                    .find(|one| one.word() == word)
                    .ok_or_else(|| {
                        let words = [$($word),+].join(", ");
                        format!("unknown {} '{word}'; there are {words}", $what)
                    })
            }
        }
    };
}
