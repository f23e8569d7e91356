//! The program `tweed-agent`.

fn main() {}
