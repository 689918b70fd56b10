//! The examples run. Each checks what comes out.

#[path = "../examples/software_tlb.rs"]
mod software_tlb;

#[test]
fn software_tlb() {
    software_tlb::main();
}
