//! The CPU proof of each row of the systems table of XLNet.

mod keras;
