use std::path::Path;

use ahash::AHashMap;
use segue_data_error::DataError;

use crate::request::Request;
use crate::rows::{encode_all, ids};
use crate::sieve::Sieve;
use crate::table::{Table, TableRow};

/// Usual names of the two columns.
const ID: &[&str] = &["id", "query_id", "qid", "doc_id", "docid", "docno"];
const TEXT: &[&str] = &["text", "query", "contents", "body"];

/// Queries, or documents: texts that have a name.
#[derive(Debug)]
pub(super) struct Texts {
    table: Table,
    columns: [usize; 2],
    /// Row of each name.
    places: AHashMap<String, usize>,
}

impl Texts {
    /// Reads a file of names and texts.
    pub(super) fn read(path: &Path, sieve: &mut Sieve) -> Result<Texts, DataError> {
        let header = |cells: &[String]| {
            cells.len() == 2 && ID.contains(&cells[0].as_str()) && TEXT.contains(&cells[1].as_str())
        };
        let table = Table::read(path, header, sieve)?;
        let columns = match table.header {
            Some(_) => [table.column(ID), table.column(TEXT)],
            None => [Some(0), (table.width == 2).then_some(1)],
        };
        let [Some(id), Some(text)] = columns else {
            return Err(table.bad(
                1,
                "it does not have a name and a text\nhint: write `id<TAB>text`, or JSON with \
                    both",
            ));
        };
        let mut places = AHashMap::with_capacity(table.rows.len());
        for (place, row) in table.rows.iter().enumerate() {
            match named(row, id, &places) {
                Ok(name) => _ = places.insert(name.to_string(), place),
                Err(why) => sieve.refuse(table.bad(row.line, why))?,
            }
        }
        Ok(Texts { table, columns: [id, text], places })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.table.path
    }

    pub(super) fn fingerprint(&self) -> &str {
        &self.table.fingerprint
    }

    /// Token ids of the texts with these names, at most `longest` of each. Texts that cannot be used are refused.
    pub(super) fn encode<'a>(
        &self,
        request: &Request<'_>,
        names: &[&'a str],
        longest: usize,
        sieve: &mut Sieve,
    ) -> Result<AHashMap<&'a str, Vec<u32>>, DataError> {
        let encoded = encode_all(request, names, |encoder, name| {
            let row = &self.table.rows[self.places[*name]];
            let ids = ids(encoder, &row.cells[self.columns[1]]);
            let ids = ids.and_then(|ids| match ids.is_empty() {
                true => Err("its text has no tokens".into()),
                false => Ok(ids),
            });
            let mut ids = ids.map_err(|why| self.table.bad(row.line, why))?;
            ids.truncate(longest);
            ids.shrink_to_fit();
            Ok(ids)
        });
        let mut all = AHashMap::with_capacity(names.len());
        for (name, ids) in names.iter().zip(encoded) {
            if let Some(ids) = sieve.keep(ids)? {
                all.insert(*name, ids);
            }
        }
        Ok(all)
    }
}

/// The name of a row, which no row before it has.
fn named<'a>(row: &'a TableRow, id: usize, places: &AHashMap<String, usize>) -> Result<&'a str, String> {
    let name = row.cells[id].trim();
    // TREC's files have fields between white space.
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("the name `{name}` contains white space"));
    }
    match places.contains_key(name) {
        true => Err(format!("the name `{name}` occurs twice")),
        false => Ok(name),
    }
}
