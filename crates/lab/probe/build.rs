//! Link arguments: static, at fixed addresses, without a C library.

fn main() {
    for arg in ["-nostdlib", "-nostartfiles", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,--gc-sections"] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=src/start.s");
}
