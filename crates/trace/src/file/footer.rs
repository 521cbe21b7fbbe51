use std::io::{Read, Seek, SeekFrom};

use parquet::basic::{Compression, Type as Physical};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::schema::types::ColumnDescPtr;

use super::compact::{Broken, Compact};
use super::writer::required;
use super::{KEY_SCHEMA, KEY_TRACE, MAGIC};
use crate::column::{Column, ColumnType};
use crate::metadata::check_schema;
use crate::{Error, Metadata, Place};

/// Largest footer. Ours take some 8 KiB a row group.
const LARGEST_FOOTER: u64 = 64 << 20;
/// Row groups, columns and everything else that a footer lists.
const LONGEST_LIST: u64 = 65_536;
/// Groups within groups in the schema; the library descends them by recursion.
const DEEPEST_SCHEMA: usize = 32;
/// Most bytes that one row group takes in the file.
const LARGEST_GROUP: u64 = 512 << 20;
/// Most rows for each byte of a file. Each event has a time, and times differ: compressed as well as snappy does, a row
/// takes a third of a byte. Run lengths could say two billion equal rows in ten bytes.
const MOST_ROWS_A_BYTE: u64 = 64;
/// Rows that any file may have, however small.
const FEW_ROWS: u64 = 1 << 20;

/// The file's description of itself, checked.
pub(super) struct Footer {
    pub(super) metadata: Metadata,
    /// The file's columns that are ours.
    pub(super) columns: Vec<FileColumn>,
    file: ParquetMetaData,
    file_length: u64,
}

/// A column of ours in the file.
pub(super) struct FileColumn {
    pub(super) column: Column,
    pub(super) descriptor: ColumnDescPtr,
    /// Its number among the file's columns.
    leaf: usize,
}

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
}

/// Where a column of a row group lies.
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) codec: Codec,
}

fn wrong(why: impl Into<String>) -> Error {
    Error::new(Place::File, why)
}

impl Footer {
    pub(super) fn read(source: &mut (impl Read + Seek)) -> Result<Footer, Error> {
        let system = |error: std::io::Error| wrong(error.to_string());
        let file_length = source.seek(SeekFrom::End(0)).map_err(system)?;
        let mut ends = [0; 8];
        if file_length < 12 {
            return Err(wrong(format!("{file_length} bytes are no Parquet file")));
        }
        source.seek(SeekFrom::Start(0)).map_err(system)?;
        source.read_exact(&mut ends[..4]).map_err(system)?;
        if ends[..4] != MAGIC {
            return Err(wrong("it does not begin as a Parquet file"));
        }
        source
            .seek(SeekFrom::Start(file_length - 8))
            .map_err(system)?;
        source.read_exact(&mut ends).map_err(system)?;
        if ends[4..] != MAGIC {
            return Err(wrong(
                "it does not end as a Parquet file, and without its end none of it can be read: it is cut off, or still \
                 being written; of a recording that was killed, stopgap record --recover FOLDER makes it",
            ));
        }
        let length = u64::from(u32::from_le_bytes([ends[0], ends[1], ends[2], ends[3]]));
        if length > file_length - 12 {
            return Err(wrong(format!(
                "its footer of {length} bytes is longer than the file"
            )));
        }
        if length > LARGEST_FOOTER {
            return Err(wrong(format!(
                "its footer of {length} bytes is larger than {LARGEST_FOOTER}"
            )));
        }
        source
            .seek(SeekFrom::Start(file_length - 8 - length))
            .map_err(system)?;
        let mut bytes = Vec::new();
        source
            .by_ref()
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(system)?;
        check(&bytes).map_err(|broken| match broken {
            Broken::Short => wrong("its footer is cut off"),
            Broken::Garbage => wrong("its footer is garbage"),
            Broken::LongList(count) => wrong(format!("its footer has a list of {count} elements")),
        })?;
        let file = ParquetMetaDataReader::decode_metadata(&bytes)
            .map_err(|error| wrong(format!("its footer: {error}")))?;
        let groups = file.row_groups().iter();
        // A negative number is refused with its row group.
        let rows = groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        let rows = rows.fold(0, u64::saturating_add);
        if rows > FEW_ROWS.max(file_length.saturating_mul(MOST_ROWS_A_BYTE)) {
            return Err(wrong(format!(
                "it says that it has {rows} rows, more than its {file_length} bytes can hold"
            )));
        }
        Ok(Footer {
            metadata: metadata(&file)?,
            columns: columns(&file)?,
            file,
            file_length,
        })
    }

    /// Its row groups.
    pub(super) fn groups(&self) -> usize {
        self.file.num_row_groups()
    }

    /// The rows of a row group and where each of [`Footer::columns`] lies in it.
    pub(super) fn group(&self, index: usize) -> Result<(u64, Vec<Chunk>), String> {
        let group = self.file.row_group(index);
        let rows = u64::try_from(group.num_rows())
            .map_err(|_| format!("row group {index} has {} rows", group.num_rows()))?;
        let chunks = self.columns.iter().map(|column| {
            self.chunk(group, column.leaf)
                .map_err(|why| format!("column {}: {why}", column.column.name()))
        });
        let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
        let total: u64 = chunks.iter().map(|chunk| chunk.length).sum();
        if total > self.file_length {
            return Err(format!("row group {index} is larger than the file"));
        }
        if total > LARGEST_GROUP {
            return Err(format!(
                "row group {index} takes {total} bytes; at most {LARGEST_GROUP} are read, so write \
                 smaller ones"
            ));
        }
        Ok((rows, chunks))
    }

    fn chunk(&self, group: &RowGroupMetaData, leaf: usize) -> Result<Chunk, String> {
        let column = group.columns().get(leaf).ok_or("a row group lacks it")?;
        if column.file_path().is_some() {
            return Err("it lies in another file".to_owned());
        }
        let codec = match column.compression() {
            Compression::UNCOMPRESSED => Codec::None,
            Compression::SNAPPY => Codec::Snappy,
            other => {
                let name = other.to_string();
                let name = name.split('(').next().unwrap_or_default().to_lowercase();
                return Err(format!("compressed with {name}; write it with snappy"));
            }
        };
        let start = match column.dictionary_page_offset() {
            Some(offset) if offset > 0 => offset.min(column.data_page_offset()),
            _ => column.data_page_offset(),
        };
        let outside = || {
            let length = self.file_length;
            format!("its pages, from byte {start}, end beyond the end of the file ({length} bytes)")
        };
        let start = u64::try_from(start).map_err(|_| outside())?;
        let length = u64::try_from(column.compressed_size()).map_err(|_| outside())?;
        if start
            .checked_add(length)
            .is_none_or(|end| end > self.file_length)
        {
            return Err(outside());
        }
        Ok(Chunk {
            start,
            length,
            codec,
        })
    }
}

/// Walks through the footer before the library does: no list is longer and no schema deeper than
/// there is memory and stack for.
fn check(bytes: &[u8]) -> Result<(), Broken> {
    // Children that are still to come, of each group that is open.
    let mut open: Vec<i64> = Vec::new();
    Compact::new(bytes, LONGEST_LIST).structure(|walk, id, wire| {
        if id != 2 {
            return walk.skip(wire);
        }
        walk.list(wire, |walk, element| {
            if !element.is_struct() {
                return Err(Broken::Garbage);
            }
            let mut children = 0;
            walk.structure(|walk, id, wire| {
                if id == 5 && wire.is_integer() {
                    children = walk.number()?;
                    return Ok(());
                }
                walk.skip(wire)
            })?;
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            while open.last().is_some_and(|&left| left <= 0) {
                open.pop();
            }
            if open.len() > DEEPEST_SCHEMA {
                return Err(Broken::Garbage);
            }
            Ok(())
        })
    })
}

fn metadata(file: &ParquetMetaData) -> Result<Metadata, Error> {
    let pairs = file.file_metadata().key_value_metadata();
    let value = |key: &str| {
        let pair = pairs?.iter().find(|pair| pair.key == key)?;
        pair.value.as_deref()
    };
    if let Some(schema) = value(KEY_SCHEMA) {
        check_schema(Place::File, schema)?;
    }
    let Some(text) = value(KEY_TRACE) else {
        return Ok(Metadata::default());
    };
    serde_json::from_str(text).map_err(|error| wrong(format!("metadata {KEY_TRACE}: {error}")))
}

fn columns(file: &ParquetMetaData) -> Result<Vec<FileColumn>, Error> {
    let mut columns: Vec<FileColumn> = Vec::new();
    for (leaf, descriptor) in file
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .enumerate()
    {
        let path = descriptor.path().parts();
        let Some(column) = path.first().and_then(|name| Column::named(name)) else {
            continue;
        };
        let is = |why: String| wrong(format!("column {}: {why}", column.name()));
        if path.len() != 1 || descriptor.max_rep_level() != 0 || descriptor.max_def_level() > 1 {
            return Err(is("it is a list or a group".to_owned()));
        }
        if columns.iter().any(|known| known.column == column) {
            return Err(is("there are two of it".to_owned()));
        }
        let (physical, wanted) = (descriptor.physical_type(), column.column_type());
        let fits = match wanted {
            ColumnType::U32 | ColumnType::I32 | ColumnType::U64 | ColumnType::I64 => {
                matches!(physical, Physical::INT32 | Physical::INT64)
            }
            ColumnType::Bool => physical == Physical::BOOLEAN,
            ColumnType::Text => physical == Physical::BYTE_ARRAY,
        };
        if !fits {
            return Err(is(format!(
                "it is of type {physical}, not {}",
                wanted.word()
            )));
        }
        columns.push(FileColumn {
            column,
            descriptor: descriptor.clone(),
            leaf,
        });
    }
    for &column in Column::ALL.iter().filter(|&&column| required(column)) {
        if !columns.iter().any(|known| known.column == column) {
            return Err(wrong(format!(
                "it is no trace: there is no column {}",
                column.name()
            )));
        }
    }
    Ok(columns)
}
