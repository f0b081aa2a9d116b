//! Somebody else's Parquet file, as rows of JSON values, for imports.
//!
//! Must stay true: memory is bounded by the rows of a batch; a column of a type that has no JSON form is refused by
//! name before any row is read; a null is an absent value.

use std::fs::File;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType, UInt64Type};
use chrono::DateTime;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use serde_json::{Map, Value};

use crate::error::EventStoreError;

/// Rows decoded at once.
const BATCH_ROWS: usize = 8192;

/// A Parquet file that is being read.
pub struct TableFile {
    reader: ParquetRecordBatchReader,
    columns: Vec<String>,
    rows: u64,
}

impl TableFile {
    /// Opens the file. [`EventStoreError::Corrupt`] when it is no Parquet file, or a column has no JSON form.
    pub fn open(file: File) -> Result<TableFile, EventStoreError> {
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
        Ok(TableFile { reader: builder.build()?, columns, rows })
    }

    /// Names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next rows, each with its values by column; none after the last.
    pub fn next_rows(&mut self) -> Option<Result<Vec<Map<String, Value>>, EventStoreError>> {
        let batch = self.reader.next()?;
        Some(batch.map_err(EventStoreError::from).and_then(|batch| rows(&batch)))
    }
}

impl std::fmt::Debug for TableFile {
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

fn rows(batch: &RecordBatch) -> Result<Vec<Map<String, Value>>, EventStoreError> {
    let mut rows = vec![Map::new(); batch.num_rows()];
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let values = values(array)?;
        for (row, value) in rows.iter_mut().zip(values) {
            if let Some(value) = value {
                row.insert(field.name().clone(), value);
            }
        }
    }
    Ok(rows)
}

fn values(array: &ArrayRef) -> Result<Vec<Option<Value>>, EventStoreError> {
    let data_type = array.data_type();
    Ok(match data_type {
        DataType::Null => vec![None; array.len()],
        DataType::Boolean => array.as_boolean().iter().map(|value| value.map(Value::from)).collect(),
        DataType::UInt64 => {
            array.as_primitive::<UInt64Type>().iter().map(|value| value.map(Value::from)).collect()
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
            let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            micros.as_primitive::<TimestampMicrosecondType>().iter().map(|at| at.and_then(instant)).collect()
        }
        DataType::List(_) => array.as_list::<i32>().iter().map(list).collect::<Result<_, _>>()?,
        DataType::LargeList(_) => array.as_list::<i64>().iter().map(list).collect::<Result<_, _>>()?,
        DataType::Struct(_) => structs(array)?,
        other if other.is_integer() => {
            let integers = cast(array, &DataType::Int64)?;
            integers.as_primitive::<Int64Type>().iter().map(|value| value.map(Value::from)).collect()
        }
        // What is no number (NaN, infinities) has no JSON form and is absent.
        other if other.is_floating() => {
            let floats = cast(array, &DataType::Float64)?;
            let floats = floats.as_primitive::<Float64Type>().iter();
            floats.map(|value| value.map(Value::from).filter(|value| !value.is_null())).collect()
        }
        DataType::Dictionary(_, of)
            if !matches!(**of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) =>
        {
            values(&cast(array, of)?)?
        }
        _ => {
            let texts = cast(array, &DataType::Utf8)?;
            texts.as_string::<i32>().iter().map(|value| value.map(Value::from)).collect()
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
fn instant(micros: i64) -> Option<Value> {
    let at = DateTime::from_timestamp_micros(micros)?;
    Some(Value::from(at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BooleanArray, Float64Array, Int32Array, StringArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, UInt64Array,
    };
    use parquet::arrow::ArrowWriter;
    use serde_json::json;

    fn open(columns: Vec<(&str, ArrayRef)>) -> Result<TableFile, EventStoreError> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name.to_owned(), array, true)),
        );
        let batch = batch.unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut writer = ArrowWriter::try_new(file.try_clone().unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        TableFile::open(file)
    }

    #[test]
    fn rows_have_the_values_that_are_not_null() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let mut table = open(vec![
            ("text", text.clone()),
            (
                "coded",
                cast(&text, &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
                    .unwrap(),
            ),
            ("small", Arc::new(Int32Array::from(vec![Some(-5), None]))),
            ("large", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
            ("float", Arc::new(Float64Array::from(vec![50.0, f64::NAN]))),
            ("yes", Arc::new(BooleanArray::from(vec![Some(true), None]))),
            ("micros", Arc::new(TimestampMicrosecondArray::from(vec![1_500_001, -1]))),
            (
                "millis",
                Arc::new(TimestampMillisecondArray::from(vec![Some(1500), None]).with_timezone("+02:00")),
            ),
        ])
        .unwrap();
        assert_eq!(table.rows(), 2);
        let rows = table.next_rows().unwrap().unwrap();
        let first = json!({
            "text": "a", "coded": "a", "small": -5, "large": u64::MAX, "float": 50.0, "yes": true,
            "micros": "1970-01-01T00:00:01.500001Z", "millis": "1970-01-01T00:00:01.500000Z",
        });
        assert_eq!(Value::from(rows[0].clone()), first);
        assert_eq!(
            Value::from(rows[1].clone()),
            json!({"large": 0, "micros": "1969-12-31T23:59:59.999999Z"})
        );
        assert!(table.next_rows().is_none());
    }

    #[test]
    fn a_column_without_a_json_form_is_refused_by_name() {
        let error = open(vec![("blob", Arc::new(BinaryArray::from(vec![b"x".as_slice()])))]).unwrap_err();
        assert!(error.to_string().contains("blob"), "{error}");
    }
}
