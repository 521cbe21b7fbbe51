//! An event's format, as tracefs gives it in `events/SYSTEM/EVENT/format`: which fields a record
//! has, where and how long. It is read at run time, because fields come, go and move between kernel
//! versions (`kernel/trace/trace_events.c`, `f_show()`).

use crate::error::{Error, Result};

/// The format of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The event's name, without its system.
    pub name: String,
    /// The number by which records name it (`common_type`).
    pub id: u16,
    /// How the kernel would print it: C source, of interest for the names of flags in it.
    pub print: String,
    fields: Vec<Field>,
}

/// One field of an event: where its bytes are. Its reading methods never look beyond the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    name: String,
    offset: usize,
    size: usize,
    signed: bool,
    place: Place,
}

/// Where the bytes are that a field is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the field.
    Here,
    /// `__data_loc`: elsewhere in the record; the field holds offset and length.
    Elsewhere,
    /// `__rel_loc`: the same, the offset counting from the field's end.
    After,
}

/// No record is longer than a page of the ring buffer, and no page longer than this.
const LONGEST: usize = 1 << 20;

impl Format {
    /// Reads the text of a format; `file` is its name in errors.
    ///
    /// # Errors
    /// Where it has no name, no id that fits 16 bits, or a field that cannot be understood.
    pub fn parse(file: &str, text: &str) -> Result<Format> {
        let wrong = |why: String| Error::description(file, why);
        let (mut name, mut id, mut print) = (None, None, String::new());
        let mut fields = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name = Some(rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                let number = rest.trim().parse();
                id =
                    Some(number.map_err(|_| {
                        wrong(format!("the ID '{}' is no 16-bit number", rest.trim()))
                    })?);
            } else if let Some(rest) = line.strip_prefix("print fmt:") {
                rest.trim().clone_into(&mut print);
            } else if line.starts_with("field:") {
                fields.push(Field::parse(line).map_err(wrong)?);
            }
        }
        Ok(Format {
            name: name.ok_or_else(|| wrong("it has no line 'name:'".to_owned()))?,
            id: id.ok_or_else(|| wrong("it has no line 'ID:'".to_owned()))?,
            print,
            fields,
        })
    }

    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// Reads `field:DECLARATION; offset:N; size:N; signed:N;`.
    pub(crate) fn parse(line: &str) -> std::result::Result<Field, String> {
        let mut declaration = "";
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in line.split(';') {
            let Some((key, value)) = part.trim().split_once(':') else {
                continue;
            };
            let number = || value.trim().parse::<usize>().ok();
            match key {
                "field" => declaration = value.trim(),
                "offset" => offset = number(),
                "size" => size = number(),
                "signed" => signed = value.trim() == "1",
                _ => {}
            }
        }
        // `char comm[16]`, `__data_loc char[] name`, `struct mm_struct * mm`: the last word
        // without its brackets.
        let name = declaration.split_whitespace().next_back().unwrap_or("");
        let name = name.split('[').next().unwrap_or("");
        let name = name.trim_start_matches('*');
        if name.is_empty() {
            return Err(format!("a field without a name: '{}'", cut(line)));
        }
        let of = |what: &str| format!("field {name}: no {what} in '{}'", cut(line));
        let (offset, size) = (
            offset.ok_or_else(|| of("offset"))?,
            size.ok_or_else(|| of("size"))?,
        );
        if offset.saturating_add(size) > LONGEST {
            return Err(format!(
                "field {name}: offset {offset} and size {size} lie beyond any record"
            ));
        }
        let place = match declaration.split_whitespace().next() {
            Some("__data_loc") => Place::Elsewhere,
            Some("__rel_loc") => Place::After,
            _ => Place::Here,
        };
        if place != Place::Here && size != 4 {
            return Err(format!(
                "field {name}: a place elsewhere takes 4 bytes, not {size}"
            ));
        }
        Ok(Field {
            name: name.to_owned(),
            offset,
            size,
            signed,
            place,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes from the record's start.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of the field itself.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes that it is about; `None` where they are not within the record.
    #[must_use]
    pub fn bytes<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        let here = record.get(self.offset..self.offset + self.size)?;
        let start = match self.place {
            Place::Here => return Some(here),
            Place::Elsewhere => 0,
            Place::After => self.offset + self.size,
        };
        let place = u32::from_le_bytes(here.try_into().ok()?);
        let start = start + (place & 0xffff) as usize;
        record.get(start..start + (place >> 16) as usize)
    }

    /// The number in it, as unsigned bits; `None` where it holds none or the record ends before.
    #[must_use]
    pub fn unsigned(&self, record: &[u8]) -> Option<u64> {
        number(record.get(self.offset..self.offset + self.size)?)
    }

    /// The number in it, its sign extended where the kernel calls it signed.
    #[must_use]
    pub fn signed(&self, record: &[u8]) -> Option<i64> {
        let bits = self.unsigned(record)?;
        let spare = 64 - 8 * self.size.min(8);
        Some(if self.signed {
            (bits << spare).cast_signed() >> spare
        } else {
            bits.cast_signed()
        })
    }

    /// The `index`-th of several numbers of `size` bytes each that begin where the field does. They
    /// may go on beyond the field: the kernel declares a stack of 8 and writes what there is.
    #[must_use]
    pub fn element(&self, record: &[u8], size: usize, index: usize) -> Option<u64> {
        let start = self.offset.checked_add(size.checked_mul(index)?)?;
        number(record.get(start..start.checked_add(size)?)?)
    }

    /// The text in it, up to its first NUL; what is no UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn text<'r>(&self, record: &'r [u8]) -> Option<std::borrow::Cow<'r, str>> {
        let bytes = self.bytes(record)?;
        let end = bytes.iter().position(|&byte| byte == 0);
        Some(String::from_utf8_lossy(
            &bytes[..end.unwrap_or(bytes.len())],
        ))
    }
}

/// A number of 1, 2, 4 or 8 bytes, least significant first.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    match bytes.len() {
        1 | 2 | 4 | 8 => {
            wide[..bytes.len()].copy_from_slice(bytes);
            Some(u64::from_le_bytes(wide))
        }
        _ => None,
    }
}

fn cut(line: &str) -> String {
    line.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
