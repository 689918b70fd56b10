# The entry: there is no C library. The byte functions that compiled code calls by
# name are the kernel's own (crates/kernel/src/port/arch/bytes.s).

.global _start
_start:
    xor ebp, ebp
    mov rdi, rsp
    and rsp, -16
    call probe_main
    ud2
