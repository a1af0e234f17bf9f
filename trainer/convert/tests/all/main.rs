//! Tests of conversion.

mod convert;
mod convert_recurrent;
mod convert_xlnet;
