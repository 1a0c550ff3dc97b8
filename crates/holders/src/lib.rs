//! Who holds the devices, and files that may never answer.
