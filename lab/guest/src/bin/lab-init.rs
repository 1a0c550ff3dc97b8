//! The first process of a lab guest.

fn main() -> peerway_lab_guest::Result<()> {
    peerway_lab_guest::init::main()
}
