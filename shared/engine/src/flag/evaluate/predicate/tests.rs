//! Each operator against the table of the contract.
