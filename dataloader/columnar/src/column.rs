use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Fields};

/// The column that a name means: the names of the columns, each in the one before, that lead to it, and its type. A dot
/// goes into a struct, unless a column's own name has the dot.
pub(crate) fn find<'a>(fields: &'a Fields, name: &str) -> Option<(Vec<String>, &'a DataType)> {
    if let Some((_, field)) = fields.find(name) {
        return Some((vec![name.into()], field.data_type()));
    }
    let (outer, inner) = name.split_once('.')?;
    let DataType::Struct(fields) = fields.find(outer)?.1.data_type() else { return None };
    let (mut path, found) = find(fields, inner)?;
    path.insert(0, outer.into());
    Some((path, found))
}

/// All columns with their types, those of structs too, in words.
pub(crate) fn describe(fields: &Fields) -> String {
    /// Columns that are told.
    const MOST: usize = 32;
    let mut columns = Vec::new();
    add_columns(fields, "", &mut columns);
    let left_out = columns.len().saturating_sub(MOST);
    columns.truncate(MOST);
    match left_out {
        0 => columns.join(", "),
        more => format!("{} and {more} more", columns.join(", ")),
    }
}

fn add_columns(fields: &Fields, prefix: &str, columns: &mut Vec<String>) {
    for field in fields {
        match field.data_type() {
            DataType::Struct(inner) => add_columns(inner, &format!("{prefix}{}.", field.name()), columns),
            other => columns.push(format!("{prefix}{} ({other})", field.name())),
        }
    }
}

/// Whether values of a type are text.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The text of a row of the column at a path; `None` where it, or a struct around it, is null.
pub(crate) fn text_of_row<'a>(batch: &'a RecordBatch, path: &[String], row: usize) -> Option<&'a str> {
    let (outer, inner) = path.split_first()?;
    let mut array: &dyn Array = batch.column_by_name(outer)?;
    for name in inner {
        if array.is_null(row) {
            return None;
        }
        array = array.as_struct_opt()?.column_by_name(name)?;
    }
    text_at(array, row)
}

/// A value that is text; `None` where it is null or something else.
pub(crate) fn text_at(array: &dyn Array, row: usize) -> Option<&str> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(array.as_string_view().value(row)),
        DataType::Dictionary(..) => {
            let (values, place) = in_dictionary(array, row)?;
            text_at(values, place)
        }
        _ => None,
    }
}

/// The values of a dictionary, and the place among them that a row has.
pub(crate) fn in_dictionary(array: &dyn Array, row: usize) -> Option<(&dyn Array, usize)> {
    let dictionary = array.as_any_dictionary_opt()?;
    let place = usize::try_from(integer_at(dictionary.keys(), row)?).ok()?;
    Some((dictionary.values(), place))
}

/// A value that is an integer; `None` where it is null or something else.
pub(crate) fn integer_at(array: &dyn Array, row: usize) -> Option<i128> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        _ => return None,
    })
}
