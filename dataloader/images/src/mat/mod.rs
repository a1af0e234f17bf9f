//! Files of MATLAB, version 5 (MathWorks, "MAT-File Format", 2023): elements of a tag and data, some of them compressed.

mod elements;
pub mod svhn;
