//! pennon.
