//! What other programs get from us, each with its own tests, on the programs that were just built.

mod python;
