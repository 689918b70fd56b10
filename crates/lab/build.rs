//! Builds the reference kernel, and the probe that `softfault compare` runs on it
//! and on Linux, and copies them to this package's output folder; `run/image.rs`
//! embeds them. Each is a workspace of its own.
//!
//! The builds are the same for all profiles of this package, so they share folders
//! in the target folder: `embedded/kernel`, `embedded/probe`. Cargo locks each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Variables that a `cargo` around this one sets for its own purposes: with them the kernel
/// would be linted, instrumented or built for another target.
const NOT_INHERITED: [&str; 10] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "CLIPPY_ARGS",
];

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name}: cargo sets it"))
}

fn main() {
    let lab = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = lab.join("..");
    let (kernel, probe) = (crates.join("kernel"), lab.join("probe"));
    for input in ["src", "build.rs", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", kernel.join(input).display());
        println!("cargo:rerun-if-changed={}", probe.join(input).display());
    }
    println!("cargo:rerun-if-changed={}", kernel.join("link.ld").display());
    for input in ["src", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", crates.join("softfault").join(input).display());
    }
    println!("cargo:rerun-if-changed={}", crates.join("../Cargo.toml").display());

    let out = PathBuf::from(variable("OUT_DIR"));
    let shared = shared(&out).join("embedded");
    embed(&kernel, &shared.join("kernel"), &out.join("softfault-kernel"));
    embed(&probe, &shared.join("probe"), &out.join("softfault-probe"));
}

/// The target folder, of which the output folder is `PROFILE/build/PACKAGE-HASH/out`.
fn shared(out: &Path) -> &Path {
    out.ancestors().nth(4).expect("cargo puts the output folder into a target folder")
}

/// Puts the binary of the package's name there.
fn embed(package: &Path, target: &Path, embedded: &Path) {
    build(package, target);
    let name = embedded.file_name().unwrap_or_default();
    let image = target.join("release").join(name);
    fs::copy(&image, embedded).unwrap_or_else(|e| panic!("{} to {}: {e}", image.display(), embedded.display()));
}

/// Builds it, always optimised: it is a tool here, not what is being debugged.
fn build(package: &Path, target: &Path) {
    let manifest = package.join("Cargo.toml");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(&manifest);
    cargo.arg("--target-dir").arg(target);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO_PROFILE_")) {
        cargo.env_remove(name);
    }
    let status = cargo.status().unwrap_or_else(|e| panic!("{cargo:?}: {e}"));
    assert!(
        status.success(),
        "{0} does not build; if its lock file is out of date: cargo update --workspace --manifest-path {0}",
        manifest.display()
    );
}
