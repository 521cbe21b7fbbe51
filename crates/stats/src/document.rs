//! Documents: records and reports as JSON, and the schema that their types give.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A type that is written to a file as JSON.
pub trait Document: Serialize + JsonSchema + Sized {
    /// Returns the document as indented JSON, without a line feed at the end.
    ///
    /// Numbers must be finite. JSON has no others: they are written as `null`, which a reader refuses where a number
    /// must be.
    ///
    /// # Panics
    /// If a histogram counts a value more than 2^63 - 1 times.
    #[must_use]
    fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("keys are strings and counts below 2^63, all else can be written")
    }

    /// Returns the JSON Schema, generated from the types.
    #[must_use]
    fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

impl<T: Serialize + JsonSchema> Document for T {}

/// Returns the schema that the document `text` names. A reader checks it first: a field that another schema lacks would be
/// the wrong news.
pub(crate) fn schema_named_in(text: &str) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Name {
        schema: String,
    }
    serde_json::from_str(text).map(|Name { schema }| schema)
}
