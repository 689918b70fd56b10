//! Selects the shuttle facade of `sync`. A cfg and not a cargo feature: a feature
//! would leak into the ordinary core under `--all-features`.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=softfault_sync");
    println!("cargo::rustc-cfg=softfault_sync=\"shuttle\"");
}
