//! Conditions of requests, and whom they reach.
