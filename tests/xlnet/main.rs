//! The CPU proof of each row X of docs/book/src/contributing/rows.md, what XLNet can do: tests say which. Rows about text and draws
//! have their tests beside that code, in `dataloader`.

mod keras;
mod left_to_right;
mod limits;
mod losses;
mod memory;
mod naive;
mod positions;
mod streams;
mod tiny;
