//! GPU measurement.
