//! Values of request bodies: fields, JSON, timestamps, and the errors about them.
//!
//! Must stay true: error codes and texts are part of the HTTP contract; absent, null and present fields are distinct.

mod field_error;
pub mod fields;
pub mod json;
pub mod python;
pub mod spelling;
pub mod timestamp;

pub use field_error::FieldError;
