use std::io::{Result, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::column::{in_dictionary, integer_at, text_at};

/// Whether values of a type have a form in JSON that everybody writes alike. Dates, decimals and bytes have none.
pub(crate) fn has_form(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean => true,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Dictionary(_, values) => has_form(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_form(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| has_form(field.data_type())),
        other => other.is_integer(),
    }
}

/// Writes a row as an object.
pub(crate) fn write_row(batch: &RecordBatch, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let schema = batch.schema_ref();
    write_object(schema.fields().iter().map(|field| field.name()).zip(batch.columns()), row, out)
}

fn write_object<'a>(
    columns: impl Iterator<Item = (&'a String, &'a arrow_array::ArrayRef)>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (number, (name, values)) in columns.enumerate() {
        out.push(if number == 0 { b'{' } else { b',' });
        serde_json::to_writer(&mut *out, name)?;
        out.push(b':');
        write_value(values, row, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_list(values: &dyn Array, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    for place in 0..values.len() {
        if place > 0 {
            out.push(b',');
        }
        write_value(values, place, out)?;
    }
    out.push(b']');
    Ok(())
}

/// Writes one value of a type that [`has_form`]; numbers that are not finite are null, as JSON has none.
fn write_value(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<()> {
    if array.is_null(row) {
        return out.write_all(b"null");
    }
    if let Some(text) = text_at(array, row) {
        return Ok(serde_json::to_writer(out, text)?);
    }
    if let Some(number) = integer_at(array, row) {
        return write!(out, "{number}");
    }
    match array.data_type() {
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(row)),
        DataType::Float16 => {
            let number = f32::from(array.as_primitive::<Float16Type>().value(row));
            Ok(serde_json::to_writer(out, &number)?)
        }
        DataType::Float32 => Ok(serde_json::to_writer(out, &array.as_primitive::<Float32Type>().value(row))?),
        DataType::Float64 => Ok(serde_json::to_writer(out, &array.as_primitive::<Float64Type>().value(row))?),
        DataType::List(_) => write_list(&array.as_list::<i32>().value(row), out),
        DataType::LargeList(_) => write_list(&array.as_list::<i64>().value(row), out),
        DataType::FixedSizeList(..) => write_list(&array.as_fixed_size_list().value(row), out),
        DataType::Struct(fields) => {
            let values = array.as_struct().columns();
            write_object(fields.iter().map(|field| field.name()).zip(values), row, out)
        }
        _ => match in_dictionary(array, row) {
            Some((values, place)) => write_value(values, place, out),
            None => out.write_all(b"null"),
        },
    }
}
