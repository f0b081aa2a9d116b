//! Reads Parquet files of other systems for imports, as JSON values.
//!
//! Must stay true: memory is bounded by a few batches; a column type without a JSON form is refused by name
//! before any row is read; null is absent.

use std::fs::File;
use std::sync::mpsc::{Receiver, sync_channel};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray, TimestampMicrosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use chrono::DateTime;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use serde_json::{Map, Value};

use crate::error::EventStoreError;
use crate::property_value::PropertyValue;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Batches that are decoded ahead.
const AHEAD: usize = 4;

/// Channel from the decoding thread; none marks the end.
type Ahead = Receiver<Option<Result<ParquetImportRows, EventStoreError>>>;

/// A Parquet file that is being read.
pub struct ParquetImport {
    reader: Option<ParquetRecordBatchReader>,
    ahead: Option<Ahead>,
    columns: Vec<String>,
    compressions: Vec<(String, Compression)>,
    rows: u64,
}

impl ParquetImport {
    /// Opens the file. [`EventStoreError::Corrupt`] when it is no Parquet file, or a column has no JSON form.
    pub fn open(file: File) -> Result<ParquetImport, EventStoreError> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS);
        let schema = builder.schema().clone();
        if let Some(field) = schema.fields().iter().find(|field| !has_json_form(field.data_type())) {
            let (name, kind) = (field.name(), field.data_type());
            return Err(EventStoreError::Corrupt(format!(
                "column {name} has type {kind}, which has no JSON form"
            )));
        }
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
        let mut compressions = Vec::<(String, Compression)>::new();
        for chunk in builder.metadata().row_groups().iter().flat_map(|group| group.columns()) {
            let compression = chunk.compression();
            if !compressions.iter().any(|(_, known)| *known == compression) {
                compressions.push((chunk.column_path().string(), compression));
            }
        }
        Ok(ParquetImport { reader: Some(builder.build()?), ahead: None, columns, compressions, rows })
    }

    /// Compressions of its columns, each with the first column that uses it. Rows can only be read if the
    /// program has the decoder.
    pub fn compressions(&self) -> &[(String, Compression)] {
        &self.compressions
    }

    /// Names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next rows; none after the last.
    pub fn next_rows(&mut self) -> Option<Result<ParquetImportRows, EventStoreError>> {
        if let Some(reader) = self.reader.take() {
            match read_ahead(reader) {
                Ok(ahead) => self.ahead = Some(ahead),
                Err(error) => return Some(Err(EventStoreError::corrupt(error))),
            }
        }
        let next = self.ahead.as_ref()?.recv();
        // The decoding thread ended without reaching the end of the file.
        let next = next.unwrap_or_else(|_| Some(Err(EventStoreError::corrupt("reading the file stopped"))));
        if next.is_none() {
            self.ahead = None;
        }
        next
    }
}

/// Decodes on its own thread, a few batches ahead.
fn read_ahead(reader: ParquetRecordBatchReader) -> std::io::Result<Ahead> {
    let (give, take) = sync_channel(AHEAD);
    std::thread::Builder::new().name("import-decode".to_owned()).spawn(move || {
        for batch in reader {
            let rows = batch.map_err(EventStoreError::from).and_then(|batch| ParquetImportRows::of(&batch));
            // The receiver is gone: the import ended early.
            if give.send(Some(rows)).is_err() {
                return;
            }
        }
        // As above.
        let _ = give.send(None);
    })?;
    Ok(take)
}

impl std::fmt::Debug for ParquetImport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TableFile").field("columns", &self.columns).field("rows", &self.rows).finish()
    }
}

fn has_json_form(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            true
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => true,
        DataType::Dictionary(_, values) => has_json_form(values),
        DataType::List(items) | DataType::LargeList(items) => has_json_form(items.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| has_json_form(field.data_type())),
        other => other.is_integer() || other.is_floating(),
    }
}

/// Some rows of the file.
pub struct ParquetImportRows {
    rows: usize,
    columns: Vec<Cells>,
}

/// The values of a column.
enum Cells {
    Nothing,
    Boolean(BooleanArray),
    Integer(Int64Array),
    Float(Float64Array),
    Time(TimestampMicrosecondArray),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Dictionary { keys: Vec<usize>, nulls: Option<NullBuffer>, values: Box<Cells> },
    Values(Vec<Option<Value>>),
}

impl Cells {
    /// The value in a row; none if it is null or not a number.
    fn value(&self, row: usize) -> Option<PropertyValue<'_>> {
        Some(match self {
            Cells::Nothing => return None,
            Cells::Boolean(array) => PropertyValue::Boolean(array.is_valid(row).then(|| array.value(row))?),
            Cells::Integer(array) => PropertyValue::Integer(array.is_valid(row).then(|| array.value(row))?),
            Cells::Float(array) => {
                let float = array.is_valid(row).then(|| array.value(row))?;
                // NaN and infinities have no JSON form and are absent.
                PropertyValue::Float(Some(float).filter(|float| float.is_finite())?)
            }
            Cells::Time(array) => {
                PropertyValue::Text(format_instant(array.is_valid(row).then(|| array.value(row))?)?.into())
            }
            Cells::Text(array) => PropertyValue::Text(array.is_valid(row).then(|| array.value(row))?.into()),
            Cells::LargeText(array) => {
                PropertyValue::Text(array.is_valid(row).then(|| array.value(row))?.into())
            }
            Cells::TextView(array) => {
                PropertyValue::Text(array.is_valid(row).then(|| array.value(row))?.into())
            }
            Cells::Dictionary { keys, nulls, values } => {
                return values.value(dictionary_key(keys, nulls.as_ref(), row)?);
            }
            Cells::Values(values) => PropertyValue::of(values.get(row)?.as_ref()?),
        })
    }

    /// The instant in a row of a timestamp column, in microseconds; none in other columns.
    fn instant(&self, row: usize) -> Option<i64> {
        match self {
            Cells::Time(array) => array.is_valid(row).then(|| array.value(row)),
            Cells::Dictionary { keys, nulls, values } => {
                values.instant(dictionary_key(keys, nulls.as_ref(), row)?)
            }
            _ => None,
        }
    }
}

fn dictionary_key(keys: &[usize], nulls: Option<&NullBuffer>, row: usize) -> Option<usize> {
    keys.get(row).copied().filter(|_| nulls.is_none_or(|nulls| nulls.is_valid(row)))
}

impl ParquetImportRows {
    fn of(batch: &RecordBatch) -> Result<ParquetImportRows, EventStoreError> {
        let columns = batch.columns().iter().map(cells).collect::<Result<_, _>>()?;
        Ok(ParquetImportRows { rows: batch.num_rows(), columns })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The value of a column in a row; none if it is null or not a number.
    pub fn cell(&self, column: usize, row: usize) -> Option<PropertyValue<'_>> {
        self.columns.get(column)?.value(row)
    }

    /// The instant of a timestamp column, in microseconds; none in other columns.
    pub fn instant(&self, column: usize, row: usize) -> Option<i64> {
        self.columns.get(column)?.instant(row)
    }
}

impl std::fmt::Debug for ParquetImportRows {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TableRows").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Refuses a type that [`has_json_form`] refuses.
fn cells(array: &ArrayRef) -> Result<Cells, EventStoreError> {
    Ok(match array.data_type() {
        DataType::Null => Cells::Nothing,
        DataType::Boolean => Cells::Boolean(array.as_boolean().clone()),
        DataType::Int8 => Cells::Integer(integers::<Int8Type>(array)),
        DataType::Int16 => Cells::Integer(integers::<Int16Type>(array)),
        DataType::Int32 => Cells::Integer(integers::<Int32Type>(array)),
        DataType::Int64 => Cells::Integer(array.as_primitive::<Int64Type>().clone()),
        DataType::UInt8 => Cells::Integer(integers::<UInt8Type>(array)),
        DataType::UInt16 => Cells::Integer(integers::<UInt16Type>(array)),
        DataType::UInt32 => Cells::Integer(integers::<UInt32Type>(array)),
        DataType::Float16 => Cells::Float(floats::<Float16Type>(array)),
        DataType::Float32 => Cells::Float(floats::<Float32Type>(array)),
        DataType::Float64 => Cells::Float(array.as_primitive::<Float64Type>().clone()),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Cells::Time(instants(array)?),
        DataType::Utf8 => Cells::Text(array.as_string::<i32>().clone()),
        DataType::LargeUtf8 => Cells::LargeText(array.as_string::<i64>().clone()),
        DataType::Utf8View => Cells::TextView(array.as_string_view().clone()),
        DataType::Dictionary(..) => dictionary(array)?,
        DataType::UInt64 | DataType::List(_) | DataType::LargeList(_) | DataType::Struct(_) => {
            Cells::Values(values(array)?)
        }
        other => return Err(without_json_form(other)),
    })
}

fn without_json_form(data_type: &DataType) -> EventStoreError {
    EventStoreError::Corrupt(format!("type {data_type} has no JSON form"))
}

fn integers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Int64Array
where
    i64: From<T::Native>,
{
    array.as_primitive::<T>().unary(i64::from)
}

fn floats<T: ArrowPrimitiveType>(array: &ArrayRef) -> Float64Array
where
    f64: From<T::Native>,
{
    array.as_primitive::<T>().unary(f64::from)
}

/// Microseconds since 1970; an instant that they cannot count is null.
fn instants(array: &ArrayRef) -> Result<TimestampMicrosecondArray, EventStoreError> {
    const DAY: i64 = 86_400_000_000;
    Ok(match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => scaled::<TimestampSecondType>(array, 1_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => scaled::<TimestampMillisecondType>(array, 1000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().clone()
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().unary(|nanos| nanos.div_euclid(1000))
        }
        DataType::Date32 => scaled::<Date32Type>(array, DAY),
        DataType::Date64 => scaled::<Date64Type>(array, 1000),
        other => return Err(without_json_form(other)),
    })
}

fn scaled<T: ArrowPrimitiveType>(array: &ArrayRef, micros: i64) -> TimestampMicrosecondArray
where
    i64: From<T::Native>,
{
    array.as_primitive::<T>().unary_opt(|value| i64::from(value).checked_mul(micros))
}

fn dictionary(array: &ArrayRef) -> Result<Cells, EventStoreError> {
    let dictionary = array.as_any_dictionary();
    // Without values, every key is null.
    if dictionary.values().is_empty() {
        return Ok(Cells::Nothing);
    }
    let (keys, nulls) = (dictionary.normalized_keys(), dictionary.keys().nulls().cloned());
    Ok(Cells::Dictionary { keys, nulls, values: Box::new(cells(dictionary.values())?) })
}

/// Values inside lists and structs, and of types that our own columns do not use.
fn values(array: &ArrayRef) -> Result<Vec<Option<Value>>, EventStoreError> {
    Ok(match array.data_type() {
        DataType::UInt64 => {
            array.as_primitive::<UInt64Type>().iter().map(|value| value.map(Value::from)).collect()
        }
        DataType::List(_) => array.as_list::<i32>().iter().map(list).collect::<Result<_, _>>()?,
        DataType::LargeList(_) => array.as_list::<i64>().iter().map(list).collect::<Result<_, _>>()?,
        DataType::Struct(_) => structs(array)?,
        _ => {
            let rows = ParquetImportRows { rows: array.len(), columns: vec![cells(array)?] };
            (0..rows.len()).map(|row| rows.cell(0, row).map(|cell| cell.to_value())).collect()
        }
    })
}

fn list(items: Option<ArrayRef>) -> Result<Option<Value>, EventStoreError> {
    let Some(items) = items else { return Ok(None) };
    Ok(Some(values(&items)?.into_iter().map(Option::unwrap_or_default).collect()))
}

fn structs(array: &ArrayRef) -> Result<Vec<Option<Value>>, EventStoreError> {
    let structs = array.as_struct();
    let mut rows = vec![Map::new(); structs.len()];
    for (name, column) in structs.column_names().into_iter().zip(structs.columns()) {
        for (row, value) in rows.iter_mut().zip(values(column)?) {
            if let Some(value) = value {
                row.insert(name.to_owned(), value);
            }
        }
    }
    let rows = rows.into_iter().enumerate();
    Ok(rows.map(|(at, row)| structs.is_valid(at).then_some(Value::Object(row))).collect())
}

/// UTC with six fractional digits and `Z`.
fn format_instant(micros: i64) -> Option<String> {
    let at = DateTime::from_timestamp_micros(micros)?;
    Some(at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    use arrow_array::{
        BinaryArray, Date32Array, DictionaryArray, Float32Array, Int32Array, TimestampMillisecondArray,
        TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    };
    use parquet::arrow::ArrowWriter;
    use serde_json::json;

    fn open(columns: Vec<(&str, ArrayRef)>) -> Result<ParquetImport, EventStoreError> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name.to_owned(), array, true)),
        );
        let batch = batch.unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut writer = ArrowWriter::try_new(file.try_clone().unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        ParquetImport::open(file)
    }

    #[test]
    fn rows_have_the_values_that_are_not_null() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let mut table = open(vec![
            ("text", text.clone()),
            ("coded", Arc::new(vec![Some("a"), None].into_iter().collect::<DictionaryArray<Int32Type>>())),
            ("small", Arc::new(Int32Array::from(vec![Some(-5), None]))),
            ("large", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
            ("float", Arc::new(Float64Array::from(vec![50.0, f64::NAN]))),
            ("yes", Arc::new(BooleanArray::from(vec![Some(true), None]))),
            ("micros", Arc::new(TimestampMicrosecondArray::from(vec![1_500_001, -1]))),
            (
                "millis",
                Arc::new(TimestampMillisecondArray::from(vec![Some(1500), None]).with_timezone("+02:00")),
            ),
            ("large_text", Arc::new(LargeStringArray::from(vec![Some("b"), None]))),
            ("text_view", Arc::new(StringViewArray::from(vec![Some("c"), None]))),
            ("single", Arc::new(Float32Array::from(vec![Some(0.5), None]))),
            ("day", Arc::new(Date32Array::from(vec![Some(1), None]))),
            ("seconds", Arc::new(TimestampSecondArray::from(vec![Some(2), Some(i64::MAX)]))),
            ("nanos", Arc::new(TimestampNanosecondArray::from(vec![Some(1999), None]))),
        ])
        .unwrap();
        assert_eq!(table.rows(), 2);
        let rows = table.next_rows().unwrap().unwrap();
        let first = json!({
            "text": "a", "coded": "a", "small": -5, "large": u64::MAX, "float": 50.0, "yes": true,
            "micros": "1970-01-01T00:00:01.500001Z", "millis": "1970-01-01T00:00:01.500000Z",
            "large_text": "b", "text_view": "c", "single": 0.5, "day": "1970-01-02T00:00:00.000000Z",
            "seconds": "1970-01-01T00:00:02.000000Z", "nanos": "1970-01-01T00:00:00.000001Z",
        });
        let object = |row: usize| {
            let cells =
                table.columns().iter().enumerate().map(|(at, name)| (name.clone(), rows.cell(at, row)));
            let cells = cells.filter_map(|(name, cell)| Some((name, cell?.to_value())));
            Value::from(cells.collect::<Map<_, _>>())
        };
        assert_eq!(object(0), first);
        assert_eq!(object(1), json!({"large": 0, "micros": "1969-12-31T23:59:59.999999Z"}));
        assert_eq!(rows.instant(6, 1), Some(-1));
        assert!(table.next_rows().is_none());
    }

    #[test]
    fn a_column_without_a_json_form_is_refused_by_name() {
        let error = open(vec![("blob", Arc::new(BinaryArray::from(vec![b"x".as_slice()])))]).unwrap_err();
        assert!(error.to_string().contains("blob"), "{error}");
    }
}
