//! Link arguments of the image: a static ELF at fixed addresses, laid out by
//! `link.ld`, with nothing of a hosted program in it.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for arg in [
        "-nostdlib",
        "-nostartfiles",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
        "-Wl,--no-eh-frame-hdr",
        "-Wl,--gc-sections",
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{dir}/link.ld");
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=src/port/boot/start.s");
    println!("cargo:rerun-if-changed=src/port/arch/entry.s");
    println!("cargo:rerun-if-changed=src/port/arch/bytes.s");
}
