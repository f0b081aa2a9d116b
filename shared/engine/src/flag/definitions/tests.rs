//! The document as clients read it.
