//! An inference server without a model.
