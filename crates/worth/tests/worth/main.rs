//! The model against worked examples, published figures and bad input.

#![expect(clippy::tests_outside_test_module, reason = "a module a boundary")]
#![expect(clippy::unwrap_used, reason = "this is a test")]

mod arithmetic;
mod compare;
mod compare_work;
mod configs;
mod estimates;
mod launch;
mod launch_safety;
mod properties;
mod published;
mod state;
mod workload;
