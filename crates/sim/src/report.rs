//! What came of a simulation, for people and for programs: figures, tables, JSON and a picture.
//!
//! Nothing here simulates: a [`Record`](crate::record::Record) goes in, data or text comes out.

pub mod json;
pub mod row;
pub mod table;
pub mod timeline;

pub use row::Row;
