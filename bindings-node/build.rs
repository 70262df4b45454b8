//! Link arguments of a library that Node loads.

fn main() {
    napi_build::setup();
}
