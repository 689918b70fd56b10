# The byte functions that compiled code calls by name. In assembly, because a
# loop written in Rust is turned into a call to itself. `rep movsq` and `rep
# stosq`: QEMU emulates the byte forms one byte at a time.

.global memcpy
memcpy:
    mov rax, rdi
    mov rcx, rdx
    shr rcx, 3
    rep movsq
    mov ecx, edx
    and ecx, 7
    rep movsb
    ret

.global memmove
memmove:
    mov rax, rdi
    sub rax, rsi
    cmp rax, rdx
    jae memcpy
    mov rax, rdi
    lea rdi, [rdi + rdx - 1]
    lea rsi, [rsi + rdx - 1]
    mov rcx, rdx
    std
    rep movsb
    cld
    ret

.global memset
memset:
    mov r8, rdi
    movzx eax, sil
    mov rcx, 0x0101010101010101
    imul rax, rcx
    mov rcx, rdx
    shr rcx, 3
    rep stosq
    mov ecx, edx
    and ecx, 7
    rep stosb
    mov rax, r8
    ret

.global memcmp
.global bcmp
memcmp:
bcmp:
    xor eax, eax
    xor ecx, ecx
1:  cmp rcx, rdx
    jae 2f
    movzx eax, byte ptr [rdi + rcx]
    movzx r8d, byte ptr [rsi + rcx]
    inc rcx
    sub eax, r8d
    jz 1b
    ret
2:  xor eax, eax
    ret

.global strlen
strlen:
    xor eax, eax
1:  cmp byte ptr [rdi + rax], 0
    je 2f
    inc rax
    jmp 1b
2:  ret

# Named by the precompiled libraries; nothing unwinds.
.global rust_eh_personality
.global _Unwind_Resume
rust_eh_personality:
_Unwind_Resume:
    ud2
